# Tutti::Zip, libzip. Debian's own package file also asks for libzip's tools, which nobody here needs.
if(NOT TARGET Tutti::Zip)
  find_path(TUTTI_ZIP_INCLUDE zip.h)
  find_library(TUTTI_ZIP_LIBRARY zip)
  if(NOT TUTTI_ZIP_INCLUDE OR NOT TUTTI_ZIP_LIBRARY)
    message(FATAL_ERROR "libzip is not here, expected zip.h and libzip; on Debian: apt-get install libzip-dev")
  endif()
  add_library(Tutti::Zip UNKNOWN IMPORTED)
  set_target_properties(Tutti::Zip PROPERTIES IMPORTED_LOCATION "${TUTTI_ZIP_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TUTTI_ZIP_INCLUDE}")
endif()
