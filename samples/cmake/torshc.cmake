# torshc as a step of a CMake build: copy this file into your project.
#
#   include(torshc.cmake)
#   torshc_add_model(digits models/digits.onnx [STATIC] [OPTIONS -O3 --threads 2])
#   target_link_libraries(server PRIVATE digits)
#
# A model is compiled again when it, its external data or a rule has changed, and only then. digits_WEIGHTS is the file for
# torshc_options.weights_path; with OPTIONS --embed-weights none is needed.
cmake_minimum_required(VERSION 3.20) # DEPFILE with every generator
find_program(TORSHC torshc REQUIRED)

function(torshc_add_model name model)
  cmake_parse_arguments(PARSE_ARGV 2 given "STATIC" "" "OPTIONS")
  get_filename_component(model ${model} ABSOLUTE)
  set(bundle ${CMAKE_CURRENT_BINARY_DIR}/${name}.tsc)
  if(given_STATIC)
    set(library ${bundle}/lib${name}.a)
    set(emit archive)
    add_library(${name} STATIC IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES INTERFACE_LINK_LIBRARIES "m;pthread")
  else()
    set(library ${bundle}/lib${name}.so)
    set(emit bundle)
    add_library(${name} SHARED IMPORTED GLOBAL)
  endif()
  add_custom_command(
    OUTPUT ${library} ${bundle}/${name}.h
    COMMAND ${TORSHC} compile ${model} -o ${bundle} --prefix ${name} --emit ${emit} --MD
            --MT ${library} --MT ${bundle}/${name}.h ${given_OPTIONS}
    DEPENDS ${model}
    DEPFILE ${bundle}.d
    COMMENT "Compiling the model ${name}"
    VERBATIM)
  add_custom_target(${name}-compiled DEPENDS ${library} ${bundle}/${name}.h)
  file(MAKE_DIRECTORY ${bundle}) # an include directory has to exist when CMake looks
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${library} INTERFACE_INCLUDE_DIRECTORIES ${bundle})
  add_dependencies(${name} ${name}-compiled)
  set(${name}_WEIGHTS ${bundle}/weights.bin PARENT_SCOPE)
endfunction()
