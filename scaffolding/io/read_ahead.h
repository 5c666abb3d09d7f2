// Pages of mapped files that are wanted soon, and whether they are still there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sf::io {

// Begins to read these bytes of a mapped file, without waiting. Other memory stays as it is.
void read_ahead(const void* data, uint64_t bytes);

// Reads these bytes of a mapped file and maps their pages; what begins or ends within a page counts whole. False where
// the system has no such call (Linux before 5.14) or the file has ended before: nothing but speed is lost.
bool read_pages(const void* data, uint64_t bytes);

// RuntimeError where the file whose mapped bytes these are is shorter than it was, or was written since it was mapped:
// touching a page that is gone would end the program. Nothing for other memory, and for a file that lies elsewhere now.
void refuse_changed(const void* data);

// Copies mapped bytes from their file without touching the mapping's pages. direct: past the page cache too, which
// would only push out what is still wanted where the file is larger than memory; then `to` lies in its page of
// kDirectPage bytes as `data` does, and what else is in its first and its last page is overwritten. False, and nothing
// is read, where the bytes are not those of a file: other memory, pages that were written, a file that has moved.
// RuntimeError where reading fails. Thread-safe.
bool read_mapped(const void* data, uint64_t bytes, char* to, bool direct);
constexpr size_t kDirectPage = 4096;

}  // namespace sf::io
