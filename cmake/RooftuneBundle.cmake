# `cmake --build … --target bundle` (release preset): daemon, worker and CLI as a relocatable tarball.
set(_bundle rooftune-${PROJECT_VERSION}-linux-x86_64)
add_custom_target(bundle
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_BINARY_DIR}/${_bundle}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/${_bundle}/bin
  COMMAND ${CMAKE_STRIP} -o ${CMAKE_BINARY_DIR}/${_bundle}/bin/rooftuned $<TARGET_FILE:rooftuned>
  COMMAND ${CMAKE_STRIP} -o ${CMAKE_BINARY_DIR}/${_bundle}/bin/rooftune-worker $<TARGET_FILE:rooftune-worker>
  COMMAND ${CMAKE_STRIP} -o ${CMAKE_BINARY_DIR}/${_bundle}/bin/rooftune $<TARGET_FILE:rooftune>
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE ${CMAKE_SOURCE_DIR}/README.md
          ${CMAKE_BINARY_DIR}/${_bundle}
  COMMAND ${CMAKE_COMMAND} -E chdir ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} -E tar czf ${_bundle}.tar.gz ${_bundle}
  DEPENDS rooftuned rooftune-worker rooftune VERBATIM)
