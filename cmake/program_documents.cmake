# Shell completions and the man page, which the program writes about itself;
# cmake --install puts them where shells and man look.
if(NOT CMAKE_CROSSCOMPILING AND NOT SF_SANITIZE)
  include(GNUInstallDirs)
  set(sf_documents ${PROJECT_BINARY_DIR}/share)
  set(sf_document_files ${sf_documents}/scaffolding.bash ${sf_documents}/_scaffolding
      ${sf_documents}/scaffolding.fish ${sf_documents}/scaffolding.1)
  add_custom_command(
    OUTPUT ${sf_document_files}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${sf_documents}
    COMMAND scaffolding_program completion bash --output ${sf_documents}/scaffolding.bash
    COMMAND scaffolding_program completion zsh --output ${sf_documents}/_scaffolding
    COMMAND scaffolding_program completion fish --output ${sf_documents}/scaffolding.fish
    COMMAND scaffolding_program help --man --output ${sf_documents}/scaffolding.1
    DEPENDS scaffolding_program
    VERBATIM)
  add_custom_target(scaffolding_documents ALL DEPENDS ${sf_document_files})
  install(FILES ${sf_documents}/scaffolding.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME scaffolding COMPONENT runtime OPTIONAL)
  install(FILES ${sf_documents}/_scaffolding DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
          COMPONENT runtime OPTIONAL)
  install(FILES ${sf_documents}/scaffolding.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
          COMPONENT runtime OPTIONAL)
  install(FILES ${sf_documents}/scaffolding.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime OPTIONAL)
endif()
