//! The door's conversations, whole, in pieces, in any order of answers, and against a model.

mod ahead;
mod allocation;
mod conversations;
mod corpus;
mod dates;
mod driver;
mod limits;
mod model;
mod properties;
mod server;
