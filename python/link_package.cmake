# Links every entry of the package's source folder into the build tree, so that edits need no build.
file(MAKE_DIRECTORY ${TO})
file(GLOB entries RELATIVE ${FROM} ${FROM}/*)
foreach(entry ${entries})
  if(NOT entry STREQUAL "__pycache__")
    file(CREATE_LINK ${FROM}/${entry} ${TO}/${entry} SYMBOLIC)
  endif()
endforeach()
