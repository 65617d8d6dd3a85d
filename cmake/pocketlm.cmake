# Compile flags that every target shares, and helpers to declare targets.

add_library(pocketlm_flags INTERFACE)
target_compile_options(pocketlm_flags INTERFACE
  -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>  # false alarms of g++ 12 on std::string (GCC bug 105651)
  # The determinism contract: a multiply and an add are fused only where std::fma says so.
  -ffp-contract=off)
target_include_directories(pocketlm_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
if(POCKETLM_SANITIZE)
  target_compile_options(pocketlm_flags INTERFACE
    -fsanitize=${POCKETLM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(pocketlm_flags INTERFACE -fsanitize=${POCKETLM_SANITIZE})
endif()
if(POCKETLM_BUILD_FUZZERS)
  target_compile_options(pocketlm_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# pocketlm_module(NAME SOURCES … DEPENDS …): one static library for one folder of src/.
function(pocketlm_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(pocketlm_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(pocketlm_${name} PUBLIC pocketlm_flags ${ARG_DEPENDS})
endfunction()

# pocketlm_test(NAME SOURCES … DEPENDS …): a GoogleTest program whose cases ctest lists one by one.
# Tests find the source tree through POCKETLM_SOURCE_DIR.
function(pocketlm_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} pocketlm_test_support GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 600 ENVIRONMENT "POCKETLM_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
endfunction()

# pocketlm_fuzzer(NAME DEPENDS …): fuzz/NAME.cc as a libFuzzer program, corpus in fuzz/corpus/NAME.
function(pocketlm_fuzzer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  add_executable(${name} ${name}.cc)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  # The kept corpus comes first (regressions), then fuzzing from it with a fixed seed. New inputs and
  # crashes stay in the build folder; a crash joins fuzz/corpus/NAME once it is fixed.
  set(kept ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
  set(found ${CMAKE_CURRENT_BINARY_DIR}/found/${name})
  set(crashes ${CMAKE_CURRENT_BINARY_DIR}/crashes/${name})
  file(MAKE_DIRECTORY ${found} ${crashes})
  set(limits -rss_limit_mb=2048 -malloc_limit_mb=1024 -timeout=20 -artifact_prefix=${crashes}/)
  add_test(NAME fuzz.${name}.corpus COMMAND ${name} ${limits} -runs=0 ${kept})
  add_test(NAME fuzz.${name} COMMAND ${name} ${limits} -seed=1 -verbosity=0 -print_final_stats=1
    -max_total_time=${POCKETLM_FUZZ_SECONDS} ${found} ${kept})
  math(EXPR timeout "${POCKETLM_FUZZ_SECONDS} + 300")
  set_tests_properties(fuzz.${name}.corpus fuzz.${name} PROPERTIES TIMEOUT ${timeout} LABELS fuzz)
endfunction()

# pocketlm_pytest(NAME FILE): one pytest file as one test. POCKETLM_PYTHON has tests/requirements.txt;
# where it is empty, the Python tests are left out. The tests see the environment variables
# POCKETLM_SOURCE_DIR, POCKETLM_BUILD_DIR and POCKETLM_BIN (the program).
function(pocketlm_pytest name file)
  if(NOT POCKETLM_PYTHON)
    return()
  endif()
  add_test(NAME ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMAND ${POCKETLM_PYTHON} -B -m pytest -q -rs -p no:cacheprovider ${file})
  set_tests_properties(${name} PROPERTIES TIMEOUT 1800 LABELS python ENVIRONMENT
    "POCKETLM_SOURCE_DIR=${PROJECT_SOURCE_DIR};POCKETLM_BUILD_DIR=${PROJECT_BINARY_DIR};POCKETLM_BIN=${PROJECT_BINARY_DIR}/pocketlm")
endfunction()
