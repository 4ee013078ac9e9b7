# Each header compiles alone, twice over: one generated source per header. A *_impl.h is a body that its includers
# prepare the ground for; LibTorch's users take half a minute each, so of them only the public one is checked.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/src/*.h ${PROJECT_SOURCE_DIR}/include/pliant/*.h)
list(FILTER headers EXCLUDE REGEX "^src/torch/|_impl\\.h$")

function(header_sources out)
  set(sources)
  foreach(header IN LISTS ARGN)
    string(REGEX REPLACE "^(src|include)/" "" name ${header})
    string(MAKE_C_IDENTIFIER ${name} file)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${file}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${name}\"\n#include \"${name}\"\n")
    list(APPEND sources ${source})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

set(torch_headers ${headers})
list(FILTER torch_headers INCLUDE REGEX "^include/pliant/torch\\.h$")
list(REMOVE_ITEM headers ${torch_headers})

header_sources(sources ${headers})
add_library(house_headers OBJECT ${sources})
target_include_directories(house_headers PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(house_headers PRIVATE -O0 -g0)
target_link_libraries(house_headers PRIVATE pliant_flags fmt::fmt)

if(PLIANT_TORCH AND torch_headers)
  header_sources(sources ${torch_headers})
  add_library(house_torch_header OBJECT ${sources})
  target_compile_options(house_torch_header PRIVATE -O0 -g0)
  target_link_libraries(house_torch_header PRIVATE pliant_torch)
endif()
