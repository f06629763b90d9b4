# cmake --install: the programs, the headers, and one shared library that other projects find by find_package(Intarsia).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# What intarsia/intarsia.h reaches. All of it is inside of the library, so that a project needs nothing but torch.
set(folders base io formats config plan launch tensor comm offload nn shard optim checkpoint api)
file(WRITE ${CMAKE_BINARY_DIR}/library.cc.new "")
file(COPY_FILE ${CMAKE_BINARY_DIR}/library.cc.new ${CMAKE_BINARY_DIR}/library.cc ONLY_IF_DIFFERENT)
add_library(intarsia_library SHARED ${CMAKE_BINARY_DIR}/library.cc)
set_target_properties(intarsia_library PROPERTIES OUTPUT_NAME intarsia EXPORT_NAME intarsia VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_features(intarsia_library INTERFACE cxx_std_20)
target_include_directories(intarsia_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(intarsia_library PUBLIC IntarsiaTorch::torch PRIVATE intarsia_api)
set(whole WHOLE_ARCHIVE)
foreach(folder ${folders})
  if(TARGET intarsia_${folder})
    list(APPEND whole intarsia_${folder})
    install(DIRECTORY intarsia/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/intarsia
            FILES_MATCHING PATTERN "*.h" PATTERN "testing_*" EXCLUDE PATTERN "test_*" EXCLUDE
            PATTERN "gloo_shim" EXCLUDE)
  endif()
endforeach()
list(JOIN whole "," whole)  # headers promise everything, whether something here calls it or not
set_target_properties(intarsia_library PROPERTIES LINK_LIBRARY_OVERRIDE "${whole}")
install(FILES intarsia/intarsia.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/intarsia)
install(TARGETS intarsia_library EXPORT IntarsiaTargets)

# The programs: intarsia looks for ../libexec/intarsia-rank.
install(TARGETS intarsia)
install(TARGETS intarsia-rank RUNTIME DESTINATION libexec)
# The jobs of `intarsia example`, found beside bin/; in the build folder a link to the sources.
install(DIRECTORY examples/jobs/ DESTINATION share/intarsia/examples PATTERN make_data.py EXCLUDE)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/intarsia)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/examples/jobs ${CMAKE_BINARY_DIR}/share/intarsia/examples SYMBOLIC)
if(TARGET intarsia_cuda)
  install(TARGETS intarsia_cuda LIBRARY DESTINATION libexec)
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Intarsia)
install(EXPORT IntarsiaTargets NAMESPACE Intarsia:: DESTINATION ${package})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/IntarsiaConfig.cmake.in ${CMAKE_BINARY_DIR}/IntarsiaConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/IntarsiaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/IntarsiaConfig.cmake ${CMAKE_BINARY_DIR}/IntarsiaConfigVersion.cmake
              ${CMAKE_SOURCE_DIR}/cmake/FindIntarsiaTorch.cmake DESTINATION ${package})
