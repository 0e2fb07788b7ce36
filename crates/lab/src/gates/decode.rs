//! What an instruction does, from its bytes.

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};
use nix::libc::user_regs_struct as Registers;

/// One access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) writes: bool,
}

/// An instruction, decoded once.
pub(crate) struct Decoded {
    /// Repeats itself: each repetition is a step.
    pub(crate) repeats: bool,
    /// Locks its line: a `lock` prefix, or `xchg` with memory.
    pub(crate) locks: bool,
    /// Calls the system.
    pub(crate) is_syscall: bool,
    /// Asks what the processor can do.
    pub(crate) is_cpuid: bool,
    /// Bytes of one repetition.
    element_len: usize,
    memory: Vec<UsedMemory>,
}

impl Decoded {
    /// Decodes the instruction that these bytes start with.
    pub(crate) fn new(bytes: &[u8], address: u64) -> Option<Decoded> {
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&instruction);
        Some(Decoded {
            repeats: instruction.has_rep_prefix() || instruction.has_repne_prefix(),
            locks: locks(&instruction),
            is_syscall: instruction.code() == Code::Syscall,
            is_cpuid: instruction.code() == Code::Cpuid,
            element_len: instruction.memory_size().size(),
            memory: info.used_memory().to_vec(),
        })
    }

    /// The accesses it makes with these registers. Gathers and scatters, which nobody here uses,
    /// count none.
    pub(crate) fn accesses<'a>(&'a self, registers: &'a Registers) -> impl Iterator<Item = Access> {
        let none_left = self.repeats && registers.rcx == 0;
        self.memory.iter().filter_map(move |memory| {
            let (reads, writes) = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                _ => (false, false),
            };
            if none_left || !(reads || writes) {
                return None;
            }
            let address = memory.virtual_address(0, |register, _, _| value(registers, register))?;
            // How much all repetitions take is not known from the instruction.
            let len = match memory.memory_size().size() {
                0 if self.repeats => self.element_len,
                len => len,
            };
            Some(Access {
                address,
                len: len as u64,
                writes,
            })
        })
    }
}

fn locks(instruction: &Instruction) -> bool {
    let swaps = instruction.mnemonic() == Mnemonic::Xchg
        && (0..instruction.op_count()).any(|number| instruction.op_kind(number) == OpKind::Memory);
    instruction.has_lock_prefix() || swaps
}

/// What a register holds; `None` for those that hold no addresses.
fn value(registers: &Registers, register: Register) -> Option<u64> {
    let whole = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        // Flat in 64-bit mode.
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    };
    Some(match register.size() {
        4 => whole & 0xffff_ffff,
        2 if register.is_gpr16() => whole & 0xffff,
        _ => whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All registers 0 but rcx, rsi, rdi.
    fn registers(rcx: u64, rsi: u64, rdi: u64) -> Registers {
        Registers {
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0,
            rcx,
            rdx: 0,
            rsi,
            rdi,
            orig_rax: 0,
            rip: 0,
            cs: 0,
            eflags: 0,
            rsp: 0x1000,
            ss: 0,
            fs_base: 0x7000,
            gs_base: 0,
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        }
    }

    fn accesses(bytes: &[u8], registers: &Registers) -> Vec<(u64, u64, bool)> {
        let decoded = Decoded::new(bytes, 0x40_0000).unwrap();
        let accesses = decoded.accesses(registers);
        accesses
            .map(|access| (access.address, access.len, access.writes))
            .collect()
    }

    #[test]
    fn locked_instructions_are_known() {
        let locked: [&[u8]; 3] = [
            // lock xadd [rdi], rax; lock or dword [rsp], 0; xchg [rdi], rax
            &[0xf0, 0x48, 0x0f, 0xc1, 0x07],
            &[0xf0, 0x83, 0x0c, 0x24, 0x00],
            &[0x48, 0x87, 0x07],
        ];
        for bytes in locked {
            assert!(Decoded::new(bytes, 0).unwrap().locks, "{bytes:x?}");
        }
        // xadd [rdi], rax; xchg rax, rbx
        let plain: [&[u8]; 2] = [&[0x48, 0x0f, 0xc1, 0x07], &[0x48, 0x93]];
        for bytes in plain {
            assert!(!Decoded::new(bytes, 0).unwrap().locks, "{bytes:x?}");
        }
    }

    #[test]
    fn addresses_come_from_registers() {
        let registers = registers(2, 0x2000, 0x3000);
        // mov rax, [rsi + rcx*8 + 0x10]
        let load = [0x48, 0x8b, 0x44, 0xce, 0x10];
        assert_eq!(accesses(&load, &registers), [(0x2020, 8, false)]);
        // mov rax, fs:[0]: a thread-local
        let local = [0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0];
        assert_eq!(accesses(&local, &registers), [(0x7000, 8, false)]);
        // lea touches nothing, and neither does prefetcht0 [rsi]
        assert!(accesses(&[0x48, 0x8d, 0x46, 0x10], &registers).is_empty());
        assert!(accesses(&[0x0f, 0x18, 0x0e], &registers).is_empty());
    }

    #[test]
    fn a_repetition_moves_one_element_and_none_when_none_is_left() {
        // rep movsb
        let bytes = [0xf3, 0xa4];
        assert!(Decoded::new(&bytes, 0).unwrap().repeats);
        let mut moved = accesses(&bytes, &registers(3, 0x2000, 0x3000));
        moved.sort_unstable();
        assert_eq!(moved, [(0x2000, 1, false), (0x3000, 1, true)]);
        assert!(accesses(&bytes, &registers(0, 0x2000, 0x3000)).is_empty());
    }
}
