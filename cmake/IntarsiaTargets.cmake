# One target per folder of intarsia/, linking only its row of the layer table (intarsia/CMakeLists.txt).

add_library(intarsia_flags INTERFACE)
# -ffp-contract=off: the same element must get the same bits in a vector body and in a scalar tail.
# -fPIC everywhere: programs and libraries then share one precompiled header.
target_compile_options(intarsia_flags INTERFACE -fPIC -Wall -Wextra -Wshadow -Werror -ffp-contract=off)
target_include_directories(intarsia_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(INTARSIA_SANITIZE)
  target_compile_options(intarsia_flags INTERFACE -fsanitize=${INTARSIA_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(intarsia_flags INTERFACE -fsanitize=${INTARSIA_SANITIZE})
endif()
find_program(INTARSIA_LLD ld.lld)
if(INTARSIA_LLD)
  target_link_options(intarsia_flags INTERFACE -fuse-ld=lld)
endif()

# Tests of one executable run as one ctest entry each test case. Torch executables take a third of a second to load, so
# they are registered with one entry per test suite.
function(intarsia_register_tests target)
  cmake_parse_arguments(ARG "" "LABEL" "" ${ARGN})
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 120 LABELS "${ARG_LABEL}"
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

# PLUGIN: a module that programs load when they need it, instead of a library; where there is a toolkit for it.
# intarsia_folder(NAME [PLUGIN] [TORCH] [DEPS folder...] [LIBS target...]): library intarsia_NAME from all *.cc but *_test.cc and
# *_main.cc of the folder (one level of sub-folders included), and the executable NAME_tests from its *_test.cc.
function(intarsia_folder name)
  cmake_parse_arguments(ARG "PLUGIN;TORCH" "" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|main)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(NOT sources)
    return()
  endif()
  if(ARG_PLUGIN)
    intarsia_plugin(${name} ${sources})
    return()
  endif()
  add_library(intarsia_${name} STATIC ${sources})
  target_link_libraries(intarsia_${name} PUBLIC intarsia_flags ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    if(TARGET intarsia_${dep})
      target_link_libraries(intarsia_${name} PUBLIC intarsia_${dep})
    endif()
  endforeach()
  if(ARG_TORCH)
    target_link_libraries(intarsia_${name} PUBLIC IntarsiaTorch::torch)
    intarsia_use_pch(intarsia_${name})
  endif()
  if(tests AND INTARSIA_BUILD_TESTS)
    add_executable(${name}_tests ${tests})
    target_link_libraries(${name}_tests PRIVATE intarsia_${name} GTest::gtest GTest::gtest_main)
    if(ARG_TORCH)
      intarsia_use_pch(${name}_tests)
    endif()
    intarsia_register_tests(${name}_tests LABEL fast)
  endif()
endfunction()

# Links nothing of Intarsia, whose state must be there once: what it includes is header only. Every symbol must be found
# when it is linked.
function(intarsia_plugin name)
  if(NOT TARGET IntarsiaTorch::${name})
    return()
  endif()
  add_library(intarsia_${name} MODULE ${ARGN})
  target_link_libraries(intarsia_${name} PRIVATE intarsia_flags IntarsiaTorch::${name})
  target_compile_options(intarsia_${name} PRIVATE -fvisibility=hidden)
  target_link_options(intarsia_${name} PRIVATE -Wl,-z,defs)
  set_target_properties(intarsia_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec)
endfunction()

# Precompiled ATen headers, built once and shared: a file then compiles in about 5 s instead of 17 s.
function(intarsia_use_pch target)
  if(NOT TARGET intarsia_pch)
    if(NOT EXISTS ${CMAKE_BINARY_DIR}/pch.cc)  # writing it again would compile it again
      file(WRITE ${CMAKE_BINARY_DIR}/pch.cc "")
    endif()
    add_library(intarsia_pch STATIC ${CMAKE_BINARY_DIR}/pch.cc)
    target_link_libraries(intarsia_pch PUBLIC intarsia_flags IntarsiaTorch::torch)
    target_precompile_headers(intarsia_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/torch_pch.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM intarsia_pch)
endfunction()
