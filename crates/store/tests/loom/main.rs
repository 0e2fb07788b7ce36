//! What threads share in the index, and whoever waits for writes under way, in the interleavings that loom finds. Run with `cargo x loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p store --release --test loom`.
//!
//! The models use the index's own files, with lines of two slots, regions of two or four lines and
//! shards of two regions at most. The models are in `src/index/models.rs`, where they see its parts.
//!
//! | what is shared | model | explores |
//! | --- | --- | --- |
//! | a reader, and an insert that moves what it looks for | `a_reader_never_misses_an_entry_that_moves` | bounded |
//! | a reader, and growth that moves what it looks for | `a_reader_never_misses_an_entry_that_changes_regions` | bounded |
//! | a reader, and marks that are set anew | `a_reader_never_misses_an_entry_while_marks_are_set` | bounded |
//! | a replacement and growth | `a_replacement_is_not_lost_to_growth` | bounded |
//! | two that insert and grow | `two_inserts_grow_together` | bounded |
//! | two that replace the same place | `of_two_replacements_one_wins` | all |
//! | two writes that end, and who waits for them | `who_waits_sees_what_had_begun_end` | three preemptions |
//! | who waits, and who closes the store | `who_waits_hears_that_it_is_over` | all |
//!
//! Bounded means at most two preemptions. Loom does not try all of those: it begins with all that the calling
//! thread does, and from there few preemptions do not lead everywhere. So a model of a reader is run twice, with
//! the reader as that thread and with the writer.
#![cfg(loom)]
#![allow(unreachable_pub, missing_docs, dead_code, unused_imports, rustdoc::all)]

#[path = "../../src/epochs.rs"]
mod epochs;
#[path = "../../src/index/mod.rs"]
mod index;

#[path = "epochs.rs"]
mod epochs_models;
