# Installs the headers, the libraries and a package: find_package(Tutti) gives Tutti::tutti, and Tutti::<word> for each module.
include(CMakePackageConfigHelpers)
set(TUTTI_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)

install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${TUTTI_PACKAGE_DIR})
configure_package_config_file(cmake/TuttiConfig.cmake.in ${CMAKE_BINARY_DIR}/TuttiConfig.cmake
  INSTALL_DESTINATION ${TUTTI_PACKAGE_DIR})
# 0.x promises nothing between minors (README, "Versions").
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TuttiConfig.cmake ${CMAKE_BINARY_DIR}/TuttiConfigVersion.cmake cmake/FindLibTorch.cmake
  cmake/FindProtobufBesideTorch.cmake cmake/FindGrpc.cmake cmake/FindYaml.cmake cmake/FindZip.cmake
  DESTINATION ${TUTTI_PACKAGE_DIR})
