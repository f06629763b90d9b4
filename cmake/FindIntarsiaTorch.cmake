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

# IntarsiaTorch::cuda, for the CUDA plugin only (intarsia/cuda): torch's CUDA libraries with the toolkit's headers. Defined
# where INTARSIA_CUDA allows it and cuda_runtime_api.h, cusparse.h and nccl.h of torch's CUDA are found: in
# INTARSIA_CUDA_INCLUDE_DIRS, in CUDA_HOME, in /usr/local/cuda, or beside torch (the nvidia-* wheels). No compiler of CUDA's
# and no driver is needed.
set(INTARSIA_CUDA AUTO CACHE STRING "Build the CUDA plugin: AUTO (where a toolkit is found), ON (or fail), OFF")
set(INTARSIA_CUDA_INCLUDE_DIRS "" CACHE STRING "Folders that hold the CUDA toolkit's headers and nccl.h")
set(INTARSIA_CUDA_MAJOR 13)  # that torch's wheel is built for
set(_cuda_problem "")
if(NOT INTARSIA_CUDA STREQUAL "OFF" AND NOT TARGET IntarsiaTorch::cuda)
  set(_nvidia ${INTARSIA_TORCH_DIR}/../nvidia)
  set(_places ${INTARSIA_CUDA_INCLUDE_DIRS} $ENV{CUDA_HOME}/include /usr/local/cuda/include ${_nvidia}/cu${INTARSIA_CUDA_MAJOR}/include
      ${_nvidia}/nccl/include)
  set(_folders "")
  foreach(_header cuda_runtime_api.h cusparse.h cublasLt.h cusolverDn.h nccl.h)
    find_path(INTARSIA_FOLDER_OF_${_header} ${_header} PATHS ${_places} NO_DEFAULT_PATH)
    mark_as_advanced(INTARSIA_FOLDER_OF_${_header})
    if(INTARSIA_FOLDER_OF_${_header})
      list(APPEND _folders ${INTARSIA_FOLDER_OF_${_header}})
    else()
      string(APPEND _cuda_problem " ${_header} is not found;")
    endif()
  endforeach()
  foreach(_library torch_cuda c10_cuda)
    find_library(INTARSIA_${_library} ${_library} PATHS ${INTARSIA_TORCH_DIR}/lib NO_DEFAULT_PATH)
    mark_as_advanced(INTARSIA_${_library})
    if(NOT INTARSIA_${_library})
      string(APPEND _cuda_problem " libtorch has no lib${_library}.so;")
    endif()
  endforeach()
  find_library(INTARSIA_CUDART NAMES libcudart.so.${INTARSIA_CUDA_MAJOR} PATHS ${_nvidia}/cu${INTARSIA_CUDA_MAJOR}/lib /usr/local/cuda/lib64
               NO_DEFAULT_PATH)
  mark_as_advanced(INTARSIA_CUDART)
  if(NOT INTARSIA_CUDART)
    string(APPEND _cuda_problem " libcudart.so.${INTARSIA_CUDA_MAJOR} is not found;")
  endif()
  if(NOT _cuda_problem)
    file(STRINGS ${INTARSIA_FOLDER_OF_cuda_runtime_api.h}/cuda_runtime_api.h _version REGEX "define CUDART_VERSION +[0-9]+")
    string(REGEX MATCH "[0-9]+$" _version "${_version}")
    math(EXPR _major "${_version} / 1000")
    if(NOT _major EQUAL INTARSIA_CUDA_MAJOR)
      set(_cuda_problem " the toolkit is CUDA ${_major}, libtorch is built for CUDA ${INTARSIA_CUDA_MAJOR};")
    endif()
  endif()
  if(NOT _cuda_problem)
    list(REMOVE_DUPLICATES _folders)
    add_library(IntarsiaTorch::cuda INTERFACE IMPORTED)
    set_target_properties(IntarsiaTorch::cuda PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${_folders}"
      INTERFACE_COMPILE_DEFINITIONS "USE_CUDA;USE_C10D_NCCL"
      INTERFACE_LINK_LIBRARIES "IntarsiaTorch::torch;${INTARSIA_torch_cuda};${INTARSIA_c10_cuda};${INTARSIA_CUDART}")
  elseif(INTARSIA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "the CUDA plugin cannot be built:${_cuda_problem} give -DINTARSIA_CUDA_INCLUDE_DIRS=FOLDERS, or -DINTARSIA_CUDA=OFF")
  else()
    message(STATUS "No CUDA plugin:${_cuda_problem} --device cuda will be refused")
  endif()
endif()
