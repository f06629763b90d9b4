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
# A third less to compile; the code under test keeps its own. At -O1 GCC 12 warns of accesses inside std::string that
# are none, and of members of an empty std::optional.
set(INTARSIA_TEST_OPTIONS -O1 -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized)
find_program(INTARSIA_LLD ld.lld)
if(INTARSIA_LLD)
  target_link_options(intarsia_flags INTERFACE -fuse-ld=lld)
endif()

# Each test case of an executable is one entry of ctest, so that `./dev test -R` finds it by its name. A torch executable
# takes a third of a second to load for each.
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
    target_compile_options(${name}_tests PRIVATE ${INTARSIA_TEST_OPTIONS})
    if(ARG_TORCH)
      intarsia_use_pch(${name}_tests)
    else()
      intarsia_use_pch(${name}_tests test)
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

# Precompiled headers, built once for each kind and shared: a file that uses torch then compiles in about 5 s instead of 17 s.
# intarsia_use_pch(TARGET [KIND]): KIND is torch (the default) or test: cmake/KIND_pch.h.
function(intarsia_use_pch target)
  set(kind torch)
  set(pch intarsia_pch)
  if(ARGC GREATER 1)
    set(kind ${ARGV1})
    set(pch intarsia_${kind}_pch)
  endif()
  if(NOT TARGET ${pch})
    if(NOT EXISTS ${CMAKE_BINARY_DIR}/pch.cc)  # writing it again would compile it again
      file(WRITE ${CMAKE_BINARY_DIR}/pch.cc "")
    endif()
    add_library(${pch} STATIC ${CMAKE_BINARY_DIR}/pch.cc)
    target_link_libraries(${pch} PUBLIC intarsia_flags)
    if(kind STREQUAL torch)
      target_link_libraries(${pch} PUBLIC IntarsiaTorch::torch)
    elseif(kind STREQUAL test)
      target_link_libraries(${pch} PUBLIC GTest::gtest)
    endif()
    target_precompile_headers(${pch} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${kind}_pch.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()
