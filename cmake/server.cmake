# libscaffolding_server.a: scaffolding/server/, which the program alone links. The core library knows no network beside
# the hub's downloads: Boost's headers and SQLite are this one's.
option(SF_SERVER "Build the server, `scaffolding serve` (Boost's headers, SQLite)" ON)
if(SF_SERVER)
  find_path(SF_BOOST_INCLUDE boost/beast/version.hpp)
  if(SKBUILD)   # tools that put libraries into wheels look at shared objects, not at programs
    find_library(SF_SQLITE_LIBRARY NAMES libsqlite3.a sqlite3)
  else()
    find_library(SF_SQLITE_LIBRARY sqlite3)
  endif()
  find_path(SF_SQLITE_INCLUDE sqlite3.h)
  if(NOT SF_BOOST_INCLUDE OR NOT SF_SQLITE_LIBRARY OR NOT SF_SQLITE_INCLUDE)
    set(SF_SERVER OFF)
    message(STATUS "Boost's headers or SQLite not found: no `scaffolding serve` (Debian: libboost1.81-dev "
                   "libsqlite3-dev)")
  endif()
endif()
if(SF_SERVER)
  file(GLOB_RECURSE sf_server CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scaffolding/server/*.cpp)
  list(FILTER sf_server EXCLUDE REGEX "(_test|_bench|_fuzz|\\.postgres)\\.cpp$")
  add_library(scaffolding_server STATIC ${sf_server})
  # -O1: templates of Boost and JSON take half as long to compile, and nothing here is hot.
  target_compile_options(scaffolding_server PRIVATE ${SF_WARNINGS} $<$<CONFIG:Release>:-O1>)
  target_compile_options(scaffolding_server PRIVATE ${sf_sanitized_upper})
  target_include_directories(scaffolding_server SYSTEM PRIVATE ${SF_BOOST_INCLUDE} ${SF_SQLITE_INCLUDE})
  target_link_libraries(scaffolding_server PUBLIC scaffolding nlohmann_json::nlohmann_json
                        PRIVATE ${SF_SQLITE_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS})
  sf_unity(scaffolding_server)
  # libscaffolding_postgres.so: the history of several servers, opened when --database asks for it. No part of a wheel,
  # which must run where libpq is not.
  if(NOT SKBUILD)
    find_library(SF_PQ_LIBRARY pq)
    find_path(SF_PQ_INCLUDE libpq-fe.h PATH_SUFFIXES postgresql)
    if(SF_PQ_LIBRARY AND SF_PQ_INCLUDE)
      sf_engine(postgres ${SF_PQ_INCLUDE} ${SF_PQ_LIBRARY} nlohmann_json::nlohmann_json)
    else()
      message(STATUS "libpq not found: no `scaffolding serve --database` (Debian: libpq-dev)")
    endif()
  endif()
  # The page's files, so that the program needs none beside it.
  file(GLOB sf_page CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scaffolding/server/page/*.js
       ${PROJECT_SOURCE_DIR}/scaffolding/server/page/*.css ${PROJECT_SOURCE_DIR}/scaffolding/server/page/*.html)
  sf_embed(target scaffolding_server out page_files.cpp header scaffolding/server/page/page.h namespace sf::server
           type PageFile function page_files names FILENAME files ${sf_page})
else()
  list(FILTER sf_tests EXCLUDE REGEX "/scaffolding/server/")
endif()
