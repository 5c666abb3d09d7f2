// NumPy's .npy and .npz (numpy/lib/format.py), without NumPy. The header is read by a parser of exactly the dict that
// NumPy writes; nothing is evaluated. Arrays borrow the file's bytes where order of bytes and alignment allow.
// const use is thread-safe.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"
#include "scaffolding/io/formats/zip.h"

namespace sf::io {

struct NpyHeader {
  char kind = 0;  // 'f', 'i', 'u', 'b'
  int item = 0;   // bytes of an element
  bool big_endian = false, fortran = false;
  Shape shape;
  uint64_t data = 0;  // where the elements begin
};

bool is_npy(const Bytes& file);
// ValueError for damaged files, NotSupported for arrays of objects, structures, text, dates and complex numbers.
NpyHeader read_npy_header(const Bytes& file);
// Column-major arrays come with column-major strides; uint16, uint32 and uint64 as int32, int64 and int64 modulo 2^64.
Tensor load_npy(const Bytes& file);
// TypeError for bfloat16 and float8, which NumPy does not have.
void save_npy(const Tensor& array, Sink& sink);

// A zip archive of .npy files; arrays are named without that ending.
class NpzFile {
 public:
  explicit NpzFile(const Bytes& file);
  const std::vector<std::string>& names() const { return names_; }
  NpyHeader header(const std::string& name) const;  // nothing behind it is inflated or checked
  Tensor get(const std::string& name) const;        // ValueError for a name the file does not have

 private:
  const ZipEntry& entry(const std::string& name) const;
  ZipReader zip_;
  std::vector<std::string> names_;
};

void save_npz(const std::map<std::string, Tensor>& arrays, Sink& sink);

}  // namespace sf::io
