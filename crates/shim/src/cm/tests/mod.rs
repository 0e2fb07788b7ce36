//! Connections within one process, asked for as librdmacm asks for them: by writing to descriptors.

mod connections;
mod ports;
mod program;
mod refusals;
