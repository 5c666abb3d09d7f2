set(SF_SANITIZE "" CACHE STRING "Sanitizers for the whole build: address,undefined or thread")
if(SF_SANITIZE)
  add_compile_options(-fsanitize=${SF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SF_SANITIZE})
  if(SF_SANITIZE MATCHES undefined)   # a fifth of such a build; the address sanitizer names such accesses too
    add_compile_options(-fno-sanitize=null)
  endif()
endif()
