# Headers of others that most sources take, compiled once. A source still includes what it uses: it must compile with SLUICE_PCH=OFF.
set(SLUICE_COMMON_HEADERS
  <algorithm> <array> <atomic> <charconv> <chrono> <cstdint> <deque> <expected> <filesystem> <fstream> <functional> <map> <memory>
  <mutex> <optional> <set> <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
  <fmt/format.h> <nlohmann/json.hpp>)

# One holder for what is position-independent (libraries), one for programs of tests: clang takes no other's.
function(sluice_precompiled_holder name)
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPS" ${ARGN})
  target_link_libraries(${name} PRIVATE sluice_options sluice_fmt nlohmann_json::nlohmann_json ${ARG_DEPS})
  set(headers ${SLUICE_COMMON_HEADERS} ${ARG_HEADERS})
  list(TRANSFORM headers REPLACE "^.+$" "$<$<COMPILE_LANGUAGE:CXX>:\\0>")
  target_precompile_headers(${name} PRIVATE ${headers})
  # The same octets from the same headers, so that a compiler cache finds what was made from them.
  target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
endfunction()

function(sluice_make_precompiled)
  if(NOT SLUICE_PCH)
    return()
  endif()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cc" CONTENT "")
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/precompiled_tests.cc" CONTENT "int main() {}\n")
  add_library(sluice_precompiled OBJECT "${PROJECT_BINARY_DIR}/precompiled.cc")
  sluice_precompiled_holder(sluice_precompiled)
  if(SLUICE_TESTS)
    add_executable(sluice_precompiled_tests "${PROJECT_BINARY_DIR}/precompiled_tests.cc")
    sluice_precompiled_holder(sluice_precompiled_tests HEADERS <gmock/gmock.h> <gtest/gtest.h> DEPS GTest::gtest GTest::gmock)
    target_compile_options(sluice_precompiled_tests PRIVATE -pthread)
  endif()
endfunction()

# sluice_use_precompiled(TARGET HOLDER)
function(sluice_use_precompiled target holder)
  if(SLUICE_PCH)
    target_precompile_headers(${target} REUSE_FROM ${holder})
    get_target_property(options ${holder} COMPILE_OPTIONS)
    if("-pthread" IN_LIST options)  # which some packages ask for: clang wants it of all or of none
      target_compile_options(${target} PRIVATE -pthread)
    endif()
  endif()
endfunction()
