//! Programs that know TCP alone, over rsockets. That their servers listen at the connection manager shows that it is no TCP.

use super::row::Row;

/// librspreload's `select` of rdma-core 44 (`rpoll_to_select`) sets the bits of what is ready and clears none, so that a program
/// that waits for two descriptors takes both for ready.
const SELECT_KEEPS_BITS: &str =
    "a later rdma-core: `select` of librspreload 44 does not clear what is not ready";

/// Its symbols are not those of `accept4`, which is the kernel's then, for a descriptor that is none.
const NO_ACCEPT4: &str = "a later rdma-core: librspreload 44 does not know `accept4`";

pub(super) fn rows() -> Vec<Row> {
    let mut memcached = Row::by_manager(
        "memcached",
        "-p {port}",
        ("env", "EVENT_NOEPOLL=1 memcached -u root -U 0 -l 127.0.0.1"),
        ("memccapable", "-a -h 127.0.0.1"),
    )
    .client_says(&["All tests passed"])
    .waits_for(NO_ACCEPT4);
    memcached.program = "memcached";
    let rows = [
        Row::by_manager(
            "netpipe-tcp",
            "-P {port} -n 20 -u 65536 -o {dir}/figures",
            ("NPtcp", ""),
            ("NPtcp", "-h 127.0.0.1"),
        )
        .says(
            &["bytes     20 times -->"],
            &["Send and receive buffers are"],
        ),
        Row::by_manager(
            "netpipe-tcp",
            "-P {port} -i -l 1 -u 4096 -o {dir}/figures",
            ("NPtcp", ""),
            ("NPtcp", "-h 127.0.0.1"),
        )
        .says(
            &["Integrity check passed"],
            &["Send and receive buffers are"],
        ),
        Row::by_manager(
            "iperf3",
            "-p {port}",
            ("iperf3", "-s -1 -B 127.0.0.1"),
            ("iperf3", "-c 127.0.0.1 -n 1M"),
        )
        .says(&["iperf Done."], &["receiver"])
        .waits_for(SELECT_KEEPS_BITS),
        Row::by_manager(
            "netcat-openbsd",
            "127.0.0.1 {port}",
            ("nc.openbsd", "-l"),
            ("nc.openbsd", "-N"),
        )
        .says(&[], &[])
        .waits_for(NO_ACCEPT4),
        Row::by_manager(
            "netcat-traditional",
            "",
            ("nc.traditional", "-l -s 127.0.0.1 -p {port}"),
            ("nc.traditional", "127.0.0.1 {port}"),
        )
        .says(&[], &[])
        .waits_for(SELECT_KEEPS_BITS),
        memcached,
    ];
    let tested = |row: Row| match row.missing {
        None => row.tested(),
        // What hangs takes its time.
        Some(_) => row,
    };
    rows.map(|row| tested(row.over_rsockets())).to_vec()
}
