# One target per folder of src/: pliant_module(name SOURCES ... USES ... LINKS ...)
#   USES   modules whose headers this one includes (tests/house checks the direction)
#   LINKS  outside libraries, private to the module
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(PLIANT_CCACHE ccache)
if(PLIANT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PLIANT_CCACHE}")
endif()

add_library(pliant_flags INTERFACE)
target_compile_options(pliant_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
if(PLIANT_SANITIZE)
  add_compile_options(-fsanitize=${PLIANT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_compile_options(-fno-sanitize=null,object-size,vptr)  # slow to compile, and AddressSanitizer sees what they would
  add_link_options(-fsanitize=${PLIANT_SANITIZE})
endif()

# What makes a mistake in memory harder to use; tests/house checks it. Sanitizers replace it.
if(NOT PLIANT_SANITIZE)
  add_compile_options(-fstack-protector-strong -fstack-clash-protection)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_compile_options(-fcf-protection=full)
  endif()
  add_compile_options($<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
  add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
  include(CheckPIESupported)
  check_pie_supported()  # so that CMAKE_POSITION_INDEPENDENT_CODE holds for programs too
endif()

function(pliant_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LINKS" ${ARGN})
  set(target pliant_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(pliant::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(${target} PUBLIC cxx_std_20)
  foreach(module IN LISTS ARG_USES)
    target_link_libraries(${target} PUBLIC pliant_${module})
  endforeach()
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:pliant_flags> ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY PLIANT_MODULES ${target})
endfunction()
