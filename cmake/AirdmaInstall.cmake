# SPDX-License-Identifier: MIT
# The installed tree: bin/airdma, lib/airdma/{libibverbs,librdmacm}.so.1, share/man. The build
# folder has the same bin and lib/airdma, so that build/bin/airdma works without installing.
#
# The target `product` builds what is installed and the examples, without any test.
set(AIRDMA_LIBRARY_DIRECTORY lib/airdma)

function(airdma_targets_below directory result)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(children DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(child IN LISTS children)
    airdma_targets_below(${child} below)
    list(APPEND targets ${below})
  endforeach()
  set(${result} ${targets} PARENT_SCOPE)
endfunction()

add_custom_target(product ALL)
foreach(directory IN ITEMS src/abi tools examples)
  if(directory STREQUAL tools AND NOT AIRDMA_TOOLS)
    continue()
  endif()
  if(directory STREQUAL examples AND NOT AIRDMA_EXAMPLES)
    continue()
  endif()
  airdma_targets_below(${PROJECT_SOURCE_DIR}/${directory} targets)
  foreach(target IN LISTS targets)
    add_dependencies(product ${target})
  endforeach()
endforeach()

# The sonames are what programs ask for; whether they are links or files is src/abi's business,
# so the folder is taken as it was built.
install(DIRECTORY ${CMAKE_BINARY_DIR}/${AIRDMA_LIBRARY_DIRECTORY}/
  DESTINATION ${AIRDMA_LIBRARY_DIRECTORY} USE_SOURCE_PERMISSIONS
  FILES_MATCHING PATTERN "*.so*")
if(TARGET airdma)
  install(TARGETS airdma RUNTIME DESTINATION bin)
endif()
file(GLOB pages ${PROJECT_SOURCE_DIR}/docs/man/*.1 ${PROJECT_SOURCE_DIR}/docs/man/*.7)
foreach(page IN LISTS pages)
  get_filename_component(section ${page} LAST_EXT)
  string(SUBSTRING ${section} 1 -1 section)
  install(FILES ${page} DESTINATION share/man/man${section})
endforeach()
