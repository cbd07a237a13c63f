set(ROOFTUNE_WARNINGS -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND ROOFTUNE_WARNINGS -Wthread-safety)
endif()

# rooftune_library(NAME SRCS … DEPS …): a static library of this folder.
function(rooftune_library name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SRCS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${ROOFTUNE_WARNINGS})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
endfunction()

# rooftune_binary(NAME SRCS … DEPS …): an executable, put into build/<preset>/bin.
function(rooftune_binary name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${ROOFTUNE_WARNINGS})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# rooftune_test(NAME SRCS … DEPS … [LABEL unit|slow|gpu]): a GoogleTest program. Unit by default.
# Tests find the repository by ROOFTUNE_SOURCE_DIR and the binaries by ROOFTUNE_BIN_DIR (environment).
function(rooftune_test name)
  cmake_parse_arguments(A "" "LABEL" "SRCS;DEPS" ${ARGN})
  if(NOT A_LABEL)
    set(A_LABEL unit)
  endif()
  add_executable(${name} ${A_SRCS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${ROOFTUNE_WARNINGS})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${A_LABEL} TIMEOUT 300 ENVIRONMENT
    "ROOFTUNE_SOURCE_DIR=${CMAKE_SOURCE_DIR};ROOFTUNE_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
endfunction()

# rooftune_embed(TARGET FUNCTION HEADER ROOT FILES…): compiles files into TARGET. FUNCTION, declared in
# HEADER as `const std::vector<rooftune::EmbeddedFile>& FUNCTION();`, lists them by path below ROOT.
function(rooftune_embed target function header root)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc)
  add_custom_command(OUTPUT ${out}
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/embed.py --out ${out} --function ${function}
            --header ${header} --root ${root} ${ARGN}
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/tools/embed.py VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
