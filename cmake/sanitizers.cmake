set(SF_SANITIZE "" CACHE STRING "Sanitizers for the whole build: address,undefined or thread")
if(SF_SANITIZE)
  add_compile_options(-fsanitize=${SF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SF_SANITIZE})
  if(SF_SANITIZE MATCHES undefined)   # a fifth of such a build; the address sanitizer names such accesses too
    add_compile_options(-fno-sanitize=null)
  endif()
  # Above the core, where no bytes of strangers are read at odd addresses: a fifth less to compile.
  set(sf_sanitized_upper -O0 -fno-sanitize=alignment)
  # Of kernels, whose vectors are hundreds of accesses in a line: a call for each, and of what is undefined what indices
  # can do wrong, are a quarter of the time to compile.
  set(sf_sanitized_kernels "")
  if(SF_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND sf_sanitized_kernels "SHELL:--param asan-instrumentation-with-call-threshold=0")
  endif()
  if(SF_SANITIZE MATCHES undefined)
    list(APPEND sf_sanitized_kernels -fno-sanitize=undefined -fsanitize=signed-integer-overflow,bounds,shift)
  endif()
endif()
