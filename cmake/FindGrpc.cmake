# Tutti::Grpc, gRPC's C++ library, and TUTTI_GRPC_PLUGIN, which makes its stubs. Debian's own package file also asks for the
# development files of everything below gRPC. A program that calls nothing of gRPC does not load it (as-needed): loading it
# costs more than starting such a program.
if(NOT TARGET Tutti::Grpc)
  find_path(TUTTI_GRPC_INCLUDE grpcpp/grpcpp.h)
  find_library(TUTTI_GRPCPP_LIBRARY grpc++)
  find_library(TUTTI_GRPC_LIBRARY grpc)
  find_library(TUTTI_GPR_LIBRARY gpr)
  find_library(TUTTI_ABSL_SYNC_LIBRARY absl_synchronization)  # for inline code of gRPC's headers
  find_program(TUTTI_GRPC_PLUGIN grpc_cpp_plugin)
  if(NOT TUTTI_GRPC_INCLUDE OR NOT TUTTI_GRPCPP_LIBRARY OR NOT TUTTI_GRPC_LIBRARY OR NOT TUTTI_GPR_LIBRARY
     OR NOT TUTTI_ABSL_SYNC_LIBRARY)
    message(FATAL_ERROR "gRPC is not here, expected grpcpp/grpcpp.h, libgrpc++, libgrpc, libgpr and libabsl_synchronization; \
on Debian: apt-get install libgrpc++-dev protobuf-compiler-grpc")
  endif()
  add_library(Tutti::Grpc INTERFACE IMPORTED)
  set_target_properties(Tutti::Grpc PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${TUTTI_GRPC_INCLUDE}"
    INTERFACE_INCLUDE_DIRECTORIES "${TUTTI_GRPC_INCLUDE}" INTERFACE_LINK_LIBRARIES
    "-Wl,--push-state,--as-needed,${TUTTI_GRPCPP_LIBRARY},${TUTTI_GRPC_LIBRARY},${TUTTI_GPR_LIBRARY},${TUTTI_ABSL_SYNC_LIBRARY},--pop-state")
endif()
