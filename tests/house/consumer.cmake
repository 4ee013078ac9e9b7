# Installs this build into SCRATCH, then builds and runs the project in CONSUMER against what was installed.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
run(${SCRATCH}/prefix/bin/pliant --help)
# The package must not lean on the build it came from: find it only where it was installed.
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DWANTED=${VERSION} -DWITH_TORCH=${TORCH}
    -DTorch_DIR=${TORCH_DIR})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer)
if(NOT output MATCHES "rank 0 of 1")
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()
