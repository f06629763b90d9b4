# Finds libtorch's CPU libraries without torch's own CMake files, which demand a CUDA toolkit when the wheel was built
# for one. Looks in INTARSIA_TORCH_DIR (the folder that holds lib/libtorch_cpu.so), else where ./dev installs the wheel.
# Defines IntarsiaTorch::torch: libtorch_cpu and libc10 only, no CUDA driver needed.
set(INTARSIA_TORCH_VERSION 2.15.0)
if(NOT INTARSIA_TORCH_DIR)
  if(DEFINED ENV{INTARSIA_TORCH_DIR})
    set(INTARSIA_TORCH_DIR $ENV{INTARSIA_TORCH_DIR})
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(INTARSIA_TORCH_DIR $ENV{XDG_CACHE_HOME}/intarsia/deps/torch-${INTARSIA_TORCH_VERSION}/torch)
  else()
    set(INTARSIA_TORCH_DIR $ENV{HOME}/.cache/intarsia/deps/torch-${INTARSIA_TORCH_VERSION}/torch)
  endif()
endif()
set(INTARSIA_TORCH_DIR ${INTARSIA_TORCH_DIR} CACHE PATH "Folder of libtorch: holds include/ and lib/libtorch_cpu.so")

find_library(INTARSIA_TORCH_CPU_LIBRARY torch_cpu PATHS ${INTARSIA_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_library(INTARSIA_C10_LIBRARY c10 PATHS ${INTARSIA_TORCH_DIR}/lib NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(IntarsiaTorch REQUIRED_VARS INTARSIA_TORCH_CPU_LIBRARY INTARSIA_C10_LIBRARY
  REASON_FAILURE_MESSAGE "no libtorch in ${INTARSIA_TORCH_DIR}. Run ./dev setup, or give -DINTARSIA_TORCH_DIR=FOLDER (holding lib/libtorch_cpu.so) of torch ${INTARSIA_TORCH_VERSION}")

file(READ ${INTARSIA_TORCH_DIR}/include/torch/headeronly/version.h _version)
string(REGEX MATCH "TORCH_VERSION_MAJOR ([0-9]+)" _ "${_version}")
set(_found ${CMAKE_MATCH_1})
string(REGEX MATCH "TORCH_VERSION_MINOR ([0-9]+)" _ "${_version}")
set(_found ${_found}.${CMAKE_MATCH_1})
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _wanted ${INTARSIA_TORCH_VERSION})
if(NOT _found STREQUAL _wanted)
  message(FATAL_ERROR "libtorch in ${INTARSIA_TORCH_DIR} is ${_found}; Intarsia is built for ${_wanted}")
endif()

if(NOT TARGET IntarsiaTorch::torch)
  add_library(IntarsiaTorch::torch INTERFACE IMPORTED)
  set_target_properties(IntarsiaTorch::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${INTARSIA_TORCH_DIR}/include;${INTARSIA_TORCH_DIR}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO"
    INTERFACE_LINK_LIBRARIES "${INTARSIA_TORCH_CPU_LIBRARY};${INTARSIA_C10_LIBRARY}"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath,${INTARSIA_TORCH_DIR}/lib;-Wl,-rpath,${INTARSIA_TORCH_DIR}/../nvidia/cu13/lib;-Wl,-rpath-link,${INTARSIA_TORCH_DIR}/../nvidia/cu13/lib;-Wl,--allow-shlib-undefined")
endif()
