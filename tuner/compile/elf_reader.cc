#include "tuner/compile/elf_reader.h"

#include <elf.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

absl::Status Broken(absl::string_view what) { return absl::DataLossError(absl::StrCat("not a whole cubin: ", what)); }

absl::StatusOr<absl::string_view> Slice(absl::string_view data, uint64_t offset, uint64_t size) {
  if (offset > data.size() || data.size() - offset < size) return Broken("a section lies outside the file");
  return data.substr(offset, size);
}

// Names go into messages and protos: only printable ASCII is taken.
absl::StatusOr<absl::string_view> NameAt(absl::string_view table, uint32_t offset) {
  if (offset >= table.size()) return Broken("a name lies outside its table");
  const size_t end = table.find('\0', offset);
  if (end == absl::string_view::npos) return Broken("a name does not end");
  const absl::string_view name = table.substr(offset, end - offset);
  for (const char c : name) {
    if (c < ' ' || c > '~') return Broken("a name is not text");
  }
  return name;
}

absl::Status ReadSections(absl::string_view data, const Elf64_Ehdr& header, ElfFile* file) {
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return Broken("unknown size of section headers");
  std::vector<Elf64_Shdr> headers;
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    RT_ASSIGN_OR_RETURN(const absl::string_view unused,
                        Slice(data, header.e_shoff, (uint64_t{i} + 1) * sizeof(Elf64_Shdr)));
    headers.push_back(*ReadInt<Elf64_Shdr>(unused, uint64_t{i} * sizeof(Elf64_Shdr)));
  }
  if (header.e_shstrndx >= headers.size()) return Broken("no section names");
  const Elf64_Shdr& names_header = headers[header.e_shstrndx];
  RT_ASSIGN_OR_RETURN(const absl::string_view names, Slice(data, names_header.sh_offset, names_header.sh_size));
  for (const Elf64_Shdr& entry : headers) {
    ElfSection section;
    RT_ASSIGN_OR_RETURN(section.name, NameAt(names, entry.sh_name));
    section.type = entry.sh_type;
    section.link = entry.sh_link;
    section.size = entry.sh_size;
    if (entry.sh_type != SHT_NOBITS && entry.sh_type != SHT_NULL) {
      RT_ASSIGN_OR_RETURN(section.data, Slice(data, entry.sh_offset, entry.sh_size));
    }
    file->section.push_back(section);
  }
  return absl::OkStatus();
}

absl::Status ReadSymbols(ElfFile* file) {
  const ElfSection* table = file->Find(".symtab");
  if (table == nullptr) return Broken("no symbol table");
  if (table->link >= file->section.size()) return Broken("no symbol names");
  const absl::string_view names = file->section[table->link].data;
  // NVRTC's modules have tens; the limit keeps work on hostile input short.
  if (table->data.size() / sizeof(Elf64_Sym) > 65536) return Broken("more than 65536 symbols");
  for (uint64_t offset = 0; offset + sizeof(Elf64_Sym) <= table->data.size(); offset += sizeof(Elf64_Sym)) {
    const Elf64_Sym entry = *ReadInt<Elf64_Sym>(table->data, offset);
    ElfSymbol symbol;
    RT_ASSIGN_OR_RETURN(symbol.name, NameAt(names, entry.st_name));
    symbol.info = entry.st_info;
    symbol.other = entry.st_other;
    symbol.section = entry.st_shndx;
    file->symbol.push_back(symbol);
  }
  return absl::OkStatus();
}

}  // namespace

const ElfSection* ElfFile::Find(absl::string_view name) const {
  for (const ElfSection& entry : section) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

absl::StatusOr<ElfFile> ReadElf(absl::string_view data) {
  const auto header = ReadInt<Elf64_Ehdr>(data, 0);
  if (!header.has_value()) return Broken("too short");
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return Broken("no 64-bit little-endian ELF header");
  }
  ElfFile file;
  file.machine = header->e_machine;
  file.flags = header->e_flags;
  file.abi_version = header->e_ident[EI_ABIVERSION];
  RT_RETURN_IF_ERROR(ReadSections(data, *header, &file));
  RT_RETURN_IF_ERROR(ReadSymbols(&file));
  return file;
}

}  // namespace rooftune
