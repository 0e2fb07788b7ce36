//! What the files say. The kernel's own software device (rxe) has the same ones, but for counters of packets, which
//! there are none of here.

use std::net::IpAddr;

use verbs::{DeviceAttr, Gid, GidKind, Guid, LinkLayer, PortAttr, PortState};

/// A file, or what else is at a path.
#[derive(Hash)]
pub(super) enum Entry {
    Text(String),
    Link(String),
}

/// Name and number of the character device, as the kernel gives them to the first of its kind.
const UVERBS: &str = "uverbs0";
const UVERBS_NUMBER: &str = "231:192";
/// Versions of the kernel's interface: of uverbs as such, and of the device's own part in it.
const UVERBS_ABI: u32 = 6;
const DEVICE_ABI: u32 = 1;
/// Where the loopback interface stands for those that have an address, a GID that no interface has is reached too: on this host.
const LOOPBACK: &str = "lo";

/// All files of a device, by their paths. `interfaces` says which addresses the host has.
pub(super) fn entries(
    device: &DeviceAttr,
    port: &PortAttr,
    cap_mask: u32,
    interfaces: &[(String, IpAddr)],
) -> Vec<(String, Entry)> {
    let name = &device.name;
    let own = format!("sys/devices/virtual/infiniband/{name}");
    let verbs = format!("sys/devices/virtual/infiniband_verbs/{UVERBS}");
    let mut files = Files(Vec::new());

    files.link(
        &format!("sys/class/infiniband/{name}"),
        &format!("../../devices/virtual/infiniband/{name}"),
    );
    let verbs_link = format!("../../devices/virtual/infiniband_verbs/{UVERBS}");
    files.link(&format!("sys/class/infiniband_verbs/{UVERBS}"), &verbs_link);
    files.text("sys/class/infiniband_verbs/abi_version", UVERBS_ABI);
    files.text(&format!("{verbs}/ibdev"), name);
    files.text(&format!("{verbs}/abi_version"), DEVICE_ABI);
    files.text(&format!("{verbs}/dev"), UVERBS_NUMBER);

    files.text(&format!("{own}/node_type"), "1: CA");
    files.text(&format!("{own}/node_guid"), guid(device.guid));
    files.text(&format!("{own}/sys_image_guid"), guid(device.guid));
    files.text(&format!("{own}/node_desc"), name);
    files.text(&format!("{own}/fw_ver"), &device.firmware);
    files.text(&format!("{own}/hw_rev"), format!("{:#x}", device.revision));
    files.text(&format!("{own}/hca_type"), "Vervain software NIC");
    files.text(&format!("{own}/board_id"), name);

    let at = format!("{own}/ports/1");
    files.text(&format!("{at}/state"), state(port.state));
    let phys_state = match port.state {
        PortState::Active => "5: LinkUp",
        _ => "3: Disabled",
    };
    files.text(&format!("{at}/phys_state"), phys_state);
    let link_layer = match port.link_layer {
        LinkLayer::InfiniBand => "InfiniBand",
        _ => "Ethernet",
    };
    files.text(&format!("{at}/link_layer"), link_layer);
    // As `ibv_query_port` says.
    files.text(&format!("{at}/rate"), "100 Gb/sec (4X EDR)");
    files.text(&format!("{at}/lid"), format!("{:#x}", port.lid));
    files.text(&format!("{at}/lid_mask_count"), 0);
    files.text(&format!("{at}/sm_lid"), "0x0");
    files.text(&format!("{at}/sm_sl"), 0);
    files.text(&format!("{at}/cap_mask"), format!("{cap_mask:#010x}"));
    for (index, pkey) in port.pkeys.iter().enumerate() {
        files.text(&format!("{at}/pkeys/{index}"), format!("{:#06x}", pkey.0));
    }
    for (index, entry) in port.gids.iter().enumerate() {
        files.text(&format!("{at}/gids/{index}"), groups(&entry.gid.0));
        let kind = match entry.kind {
            GidKind::RoceV2 => "RoCE v2",
            _ => "IB/RoCE v1",
        };
        files.text(&format!("{at}/gid_attrs/types/{index}"), kind);
        let interface = interface(entry.gid, interfaces);
        files.text(&format!("{at}/gid_attrs/ndevs/{index}"), interface);
    }

    // What is opened there does nothing, and is a character device.
    for name in [UVERBS, "rdma_cm"] {
        files.link(&format!("dev/infiniband/{name}"), "/dev/null");
    }
    files.0
}

struct Files(Vec<(String, Entry)>);

impl Files {
    fn text(&mut self, path: &str, value: impl std::fmt::Display) {
        let line = Entry::Text(format!("{value}\n"));
        self.0.push((path.to_string(), line));
    }

    fn link(&mut self, path: &str, to: &str) {
        self.0.push((path.to_string(), Entry::Link(to.to_string())));
    }
}

/// Groups of four digits, without leaving any out.
fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect();
    let groups: Vec<String> = bytes.chunks(2).map(group).collect();
    groups.join(":")
}

fn guid(guid: Guid) -> String {
    groups(&guid.0.to_be_bytes())
}

fn state(state: PortState) -> &'static str {
    match state {
        PortState::Init => "2: INIT",
        PortState::Armed => "3: ARMED",
        PortState::Active => "4: ACTIVE",
        _ => "1: DOWN",
    }
}

/// The interface that has a GID's address.
fn interface(gid: Gid, interfaces: &[(String, IpAddr)]) -> &str {
    let is_it = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => Gid::from_ipv4(*ip) == gid,
        IpAddr::V6(ip) => ip.octets() == gid.0,
    };
    let found = interfaces.iter().find(|(_, ip)| is_it(ip));
    found.map_or(LOOPBACK, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use verbs::Mtu;

    #[test]
    fn files_say_what_the_attributes_say() {
        let gid = Gid::from_ipv4(Ipv4Addr::new(10, 1, 2, 3));
        let mut device = DeviceAttr::named("dev7");
        device.guid = gid.low();
        let port = PortAttr::active(gid, Mtu::B4096);
        let hosts = [("eth5".to_string(), IpAddr::from([10, 1, 2, 3]))];
        let entries = entries(&device, &port, 0x0401_0000, &hosts);
        let text = |path: &str| {
            let found = entries.iter().find(|(at, _)| at.ends_with(path));
            match found {
                Some((_, Entry::Text(text))) => text.as_str(),
                _ => panic!("{path} is no file"),
            }
        };
        assert_eq!(text("dev7/node_guid"), "0000:ffff:0a01:0203\n");
        assert_eq!(
            text("ports/1/gids/0"),
            "0000:0000:0000:0000:0000:ffff:0a01:0203\n"
        );
        assert_eq!(text("gid_attrs/ndevs/0"), "eth5\n");
        assert_eq!(text("gid_attrs/types/0"), "RoCE v2\n");
        assert_eq!(text("ports/1/state"), "4: ACTIVE\n");
        assert_eq!(text("ports/1/cap_mask"), "0x04010000\n");
        assert_eq!(text("uverbs0/ibdev"), "dev7\n");
    }
}
