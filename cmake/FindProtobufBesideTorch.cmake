# protobuf::libprotobuf and protobuf::protoc, as find_package(Protobuf) gives them, but never by the headers of protobuf 3.13 that
# LibTorch carries: where CMAKE_PREFIX_PATH names LibTorch, those would be found first.
get_filename_component(_torch_prefix "${TUTTI_TORCH_INCLUDE}" DIRECTORY)
set(_ignored_prefixes ${CMAKE_IGNORE_PREFIX_PATH})
if(NOT _torch_prefix MATCHES "^/usr(/local)?$")
  list(APPEND CMAKE_IGNORE_PREFIX_PATH "${_torch_prefix}")
endif()
find_package(Protobuf 3.12 REQUIRED)
set(CMAKE_IGNORE_PREFIX_PATH ${_ignored_prefixes})
