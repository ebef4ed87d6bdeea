# Installs the build to a fresh prefix, builds the consumer against it, and runs one of its programs.
#   cmake -DBUILD=… -DSOURCE=… -DEXAMPLES=… -DWORK=… -DLAUNCHER=… -P consume.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "consumer: failed (${status}): ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1
    -DCMAKE_PREFIX_PATH=${WORK}/prefix -DEXAMPLES=${EXAMPLES} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
run(${CMAKE_COMMAND} --build ${WORK}/build -j2)
run(${WORK}/build/replica_context)
