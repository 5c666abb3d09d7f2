// Protobuf's wire format, as far as SentencePiece's messages need it: https://protobuf.dev/programming-guides/encoding.
// The messages' fields are sentencepiece_model.proto's.
#include "scaffolding/tokenizers/sentencepiece_model.h"

#include <cmath>

#include "scaffolding/io/byte_reader.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr size_t kMostPieces = 1 << 22;
constexpr uint64_t kMostBytes = 512 << 20;

// A message's fields, one after the other.
class Message {
 public:
  explicit Message(const io::Bytes& bytes) : reader_(bytes), bytes_(bytes) {}

  bool next() {
    if (reader_.left() == 0) return false;
    const uint64_t tag = varint();
    field_ = tag >> 3;
    wire_ = int(tag & 7);
    SF_CHECK(field_ > 0 && field_ < (1 << 29), bytes_.name, ": is damaged: a protobuf field has the number ", field_);
    begin_ = reader_.at();
    switch (wire_) {
      case kVarint: number_ = varint(); break;
      case kFixed64: reader_.skip(8); break;
      case kBytes:
        number_ = varint();
        begin_ = reader_.at();
        reader_.skip(number_);
        break;
      case kFixed32: reader_.skip(4); break;
      default: fail(bytes_.name, ": is damaged: a protobuf field has the wire type ", wire_);
    }
    return true;
  }
  uint64_t field() const { return field_; }

  uint64_t number() const { return of(kVarint, number_); }
  float real() const { return io::ByteReader(bytes_, of(kFixed32, begin_)).get<float>(); }
  io::Bytes bytes() const { return bytes_.slice(of(kBytes, begin_), number_); }
  std::string text() const {
    io::Bytes part = bytes();
    return std::string(part.size ? part.chars() : "", size_t(part.size));
  }

 private:
  static constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

  uint64_t of(int wire, uint64_t value) const {
    SF_CHECK(wire_ == wire, bytes_.name, ": is no SentencePiece model, or damaged: field ", field_,
             " of a message has the wire type ", wire_, ", not ", wire);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = reader_.get<uint8_t>();
      value |= uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail(bytes_.name, ": is damaged: a protobuf number has more than 10 bytes");
  }

  io::ByteReader reader_;
  io::Bytes bytes_;
  uint64_t field_ = 0, number_ = 0, begin_ = 0;
  int wire_ = 0;
};

SentencePiece read_piece(Message message, size_t id, const std::string& where) {
  SentencePiece piece;
  while (message.next()) {
    if (message.field() == 1) piece.text = message.text();
    if (message.field() == 2) piece.score = double(message.real());
    if (message.field() == 3) {
      const uint64_t type = message.number();
      SF_CHECK(type >= 1 && type <= 6, where, ": piece ", id, " has the unknown type ", type);
      piece.type = SentencePiece::Type(type);
    }
  }
  SF_CHECK(!piece.text.empty(), where, ": piece ", id, " is empty");
  require_utf8(piece.text, (where + ": piece " + std::to_string(id)).c_str());
  SF_CHECK(std::isfinite(piece.score), where, ": the score of piece ", id, " must be finite");
  return piece;
}

void read_trainer_spec(Message message, SentencePieceModel& model, const std::string& where) {
  while (message.next()) {
    if (message.field() == 3) {
      const uint64_t kind = message.number();
      SF_CHECK(kind >= 1 && kind <= 4, where, ": the model has the unknown type ", kind);
      model.kind = SentencePieceModel::Kind(kind);
    }
    if (message.field() == 35) model.byte_fallback = message.number() != 0;
  }
}

}  // namespace

SentencePieceModel read_sentencepiece_model(const io::Bytes& file) {
  SF_CHECK(file.size <= kMostBytes, file.name, ": a SentencePiece model may have ", kMostBytes, " bytes, got ",
           file.size);
  SentencePieceModel model;
  Message message(file);
  while (message.next()) {
    if (message.field() == 1) {
      SF_CHECK(model.pieces.size() < kMostPieces, file.name, ": a SentencePiece model may have ", kMostPieces,
               " pieces");
      model.pieces.push_back(read_piece(Message(message.bytes()), model.pieces.size(), file.name));
    }
    if (message.field() == 2) read_trainer_spec(Message(message.bytes()), model, file.name);
    if (message.field() == 3) {
      Message normalizer(message.bytes());
      while (normalizer.next())
        if (normalizer.field() == 2) model.precompiled_charsmap = normalizer.text();
    }
  }
  SF_CHECK(!model.pieces.empty(), file.name, ": is no SentencePiece model: it has no pieces");
  int64_t unknown = -1;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != SentencePiece::Type::Unknown) continue;
    SF_CHECK(unknown < 0, file.name, ": pieces ", unknown, " and ", id, " both stand for what is unknown");
    unknown = int64_t(id);
  }
  SF_CHECK(unknown >= 0, file.name, ": no piece stands for what is unknown");
  model.unk_id = unknown;
  return model;
}

}  // namespace sf::tokenizers
