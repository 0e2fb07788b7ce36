//! The software NIC against the suite that every NIC must pass, in one process and across two, and
//! what is its own: processes that come, go and die.

mod addresses;
mod causes;
mod death;
mod events;
mod farewell;
mod late;
mod memory;
mod names;
mod pair;
mod refuse;
mod refused;
mod reset;
mod room;
mod sending;

mod within_a_process {
    use super::pair;
    conformance::conformance_tests!(pair::within_a_process());
}

mod across_gids {
    use super::pair;
    conformance::conformance_tests!(pair::across_gids());
}

mod callers_memory {
    use super::pair;
    conformance::conformance_tests!(pair::callers_memory());
}

mod callers_memory_across_processes {
    use super::pair;
    conformance::conformance_tests!(pair::callers_memory_across_processes());
}

mod refused_across_processes {
    use super::pair;
    conformance::conformance_tests!(pair::refused_across_processes());
}

mod across_processes {
    use super::pair;
    conformance::conformance_tests!(pair::across_processes());
}
