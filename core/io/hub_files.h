// How the tools of Hugging Face's hub and Git leave files on a disk: a cache whose folders have a
// snapshot of each version, whose files are links to blobs, and pointers of Git LFS in the place of
// large files; and how a model comes from there. Not here: what a file holds.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fsdp {

// Whether there is a file of this name, also a link whose file is missing: who opens that one is
// told so, and does not take it for absent.
bool is_named(const std::filesystem::path& file);

// "a link to ../../blobs/0123, which is not there: ..."; "": no link, or one to what is there.
std::string broken_link(const std::filesystem::path& file);

// Of a file's text that stands in the place of the file: a pointer of Git LFS, or the name of a
// blob where a cache was copied without its links. What is said of it; "": it is the file.
std::string stand_in(std::string_view text);

// Of a folder of the hub's cache (models--ORG--NAME, or blobs or refs beside the snapshots) the one
// snapshot in it; every other path is given back. Error for several snapshots, which names them and
// that of refs/main, and for none.
std::filesystem::path snapshot_in(const std::filesystem::path& folder);

// Of a path that nothing is found at, for the end of an error. Where it has the form of a hub's
// name, ORG/NAME: the two lines of a shell that fetch that model to the place that the path names;
// "": it has another form.
std::string how_to_fetch(const std::filesystem::path& missing);

}  // namespace fsdp
