# Tutti::Yaml, libyaml.
if(NOT TARGET Tutti::Yaml)
  find_path(TUTTI_YAML_INCLUDE yaml.h)
  find_library(TUTTI_YAML_LIBRARY yaml)
  if(NOT TUTTI_YAML_INCLUDE OR NOT TUTTI_YAML_LIBRARY)
    message(FATAL_ERROR "libyaml is not here, expected yaml.h and libyaml; on Debian: apt-get install libyaml-dev")
  endif()
  add_library(Tutti::Yaml UNKNOWN IMPORTED)
  set_target_properties(Tutti::Yaml PROPERTIES IMPORTED_LOCATION "${TUTTI_YAML_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TUTTI_YAML_INCLUDE}")
endif()
