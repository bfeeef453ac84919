# Flags of every target. One interface library carries them, so that a room states only what it is made of.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 17)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# "Dev" is quick to compile and quick enough to run the whole suite.
set(CMAKE_CXX_FLAGS_DEV "-O1 -g1" CACHE STRING "" FORCE)
set(CMAKE_C_FLAGS_DEV "-O1 -g1" CACHE STRING "" FORCE)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG" CACHE STRING "" FORCE)
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG" CACHE STRING "" FORCE)

option(SLUICE_PCH "Compile the headers that most sources take from others once (cmake/SluicePrecompiled.cmake)" ON)

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SLUICE_CCACHE}")
  if(SLUICE_PCH)  # ccache(1), "Precompiled headers": without this it keeps nothing that used one
    find_program(SLUICE_ENV env REQUIRED)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${SLUICE_ENV};CCACHE_SLOPPINESS=pch_defines,time_macros;${SLUICE_CCACHE}")
  endif()
  set(CMAKE_C_COMPILER_LAUNCHER "${SLUICE_CCACHE}")
endif()

add_library(sluice_options INTERFACE)
target_include_directories(sluice_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(sluice_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast
  -Woverloaded-virtual -Wnull-dereference -Wimplicit-fallthrough -Wextra-semi -Wthread-safety
  -Werror
  -fstack-protector-strong -fno-omit-frame-pointer
  $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
target_compile_definitions(sluice_options INTERFACE _GNU_SOURCE SLUICE_VERSION="${PROJECT_VERSION}")
target_link_options(sluice_options INTERFACE -fuse-ld=lld-19 -Wl,-z,relro,-z,now -Wl,--as-needed)
if(SLUICE_SANITIZE)
  # Not of virtual tables: that looks at memory through a pipe, and where a test leaves no descriptors takes each object it has not
  # met before for a wrong one.
  target_compile_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=vptr)
  target_link_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE})
  target_compile_definitions(sluice_options INTERFACE SLUICE_SANITIZED)
endif()
if(SLUICE_FUZZ)
  target_compile_options(sluice_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
