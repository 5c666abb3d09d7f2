set(SF_SANITIZE "" CACHE STRING "Sanitizers for the whole build: address,undefined or thread")
if(SF_SANITIZE)
  add_compile_options(-fsanitize=${SF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SF_SANITIZE})
  if(SF_SANITIZE MATCHES undefined)   # a fifth of such a build; the address sanitizer names such accesses too
    add_compile_options(-fno-sanitize=null)
  endif()
  # Above the core, where no bytes of strangers are read at odd addresses: a fifth less to compile.
  set(sf_sanitized_upper -O0 -fno-sanitize=alignment)
  # Of kernels what indices can do wrong: a third less to compile. (A call for each access, GCC's
  # asan-instrumentation-with-call-threshold=0, would be a third of that, and their tests take minutes instead of
  # seconds; -O0 in the core likewise.)
  if(SF_SANITIZE MATCHES undefined)
    set(sf_sanitized_kernels -fno-sanitize=undefined -fsanitize=signed-integer-overflow,bounds,shift)
  endif()
endif()
