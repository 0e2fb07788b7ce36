//! The door's conversations, whole, in pieces, in any order of answers, and against a model.

mod conversations;
mod delay;
mod driver;
