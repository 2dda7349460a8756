//! What agents measure of the memory of their hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::name::VmName;
use berth_domain::signals::{
    GUESTS_MAX, GuestMemory, GuestsMemory, Measured, MemorySignals, NodeMemory, Pressure,
    STALL_MAX, Stall, Swap,
};

use super::field::{self, Invalid};
use super::name::ResourceName as _;
use crate::host::v1;

impl From<&Measured> for v1::MemorySignals {
    fn from(measured: &Measured) -> Self {
        let signals = &*measured.signals;
        Self {
            age: Some(field::duration(measured.age_ms)),
            memory: signals.memory.map(Into::into),
            swap: signals.swap.map(Into::into),
            pressure: signals.pressure.map(Into::into),
            guests: signals.guests.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::MemorySignals> for Measured {
    type Error = Invalid;

    fn try_from(wire: v1::MemorySignals) -> Result<Self, Invalid> {
        let age_ms = field::optional_duration_ms(wire.age, "age")?;
        Ok(Self {
            age_ms: age_ms.ok_or_else(|| Invalid::new("age", "is required"))?,
            signals: Arc::new(MemorySignals {
                memory: wire.memory.map(Into::into),
                swap: wire.swap.map(Into::into),
                pressure: field::optional(wire.pressure, "pressure")?,
                guests: field::optional(wire.guests, "guests")?,
            }),
        })
    }
}

impl From<NodeMemory> for v1::NodeMemory {
    fn from(memory: NodeMemory) -> Self {
        Self {
            total_kib: memory.total_kib,
            free_kib: memory.free_kib,
            available_kib: memory.available_kib,
            huge_kib: memory.huge_kib,
        }
    }
}

impl From<v1::NodeMemory> for NodeMemory {
    fn from(wire: v1::NodeMemory) -> Self {
        Self {
            total_kib: wire.total_kib,
            free_kib: wire.free_kib,
            available_kib: wire.available_kib,
            huge_kib: wire.huge_kib,
        }
    }
}

impl From<Swap> for v1::SwapSpace {
    fn from(swap: Swap) -> Self {
        Self {
            total_kib: swap.total_kib,
            free_kib: swap.free_kib,
        }
    }
}

impl From<v1::SwapSpace> for Swap {
    fn from(wire: v1::SwapSpace) -> Self {
        Self {
            total_kib: wire.total_kib,
            free_kib: wire.free_kib,
        }
    }
}

impl From<Pressure> for v1::MemoryPressure {
    fn from(pressure: Pressure) -> Self {
        Self {
            some: Some(pressure.some.into()),
            full: Some(pressure.full.into()),
        }
    }
}

impl TryFrom<v1::MemoryPressure> for Pressure {
    type Error = Invalid;

    fn try_from(wire: v1::MemoryPressure) -> Result<Self, Invalid> {
        Ok(Self {
            some: field::required(wire.some, "some")?,
            full: field::required(wire.full, "full")?,
        })
    }
}

impl From<Stall> for v1::MemoryStall {
    fn from(stall: Stall) -> Self {
        Self {
            avg10_milli_percent: stall.avg10_milli_percent,
            avg60_milli_percent: stall.avg60_milli_percent,
        }
    }
}

impl TryFrom<v1::MemoryStall> for Stall {
    type Error = Invalid;

    fn try_from(wire: v1::MemoryStall) -> Result<Self, Invalid> {
        let share = |value: u32, field| match value <= STALL_MAX {
            true => Ok(value),
            false => Err(Invalid::new(field, format!("must be at most {STALL_MAX}"))),
        };
        Ok(Self {
            avg10_milli_percent: share(wire.avg10_milli_percent, "avg10_milli_percent")?,
            avg60_milli_percent: share(wire.avg60_milli_percent, "avg60_milli_percent")?,
        })
    }
}

impl From<&GuestsMemory> for v1::GuestsMemory {
    fn from(guests: &GuestsMemory) -> Self {
        let each = guests.each.iter();
        Self {
            sum: Some(guests.sum.into()),
            guests: each
                .map(|(vm, memory)| (vm.resource_name(), (*memory).into()))
                .collect(),
        }
    }
}

impl TryFrom<v1::GuestsMemory> for GuestsMemory {
    type Error = Invalid;

    fn try_from(wire: v1::GuestsMemory) -> Result<Self, Invalid> {
        let sum = wire.sum.ok_or_else(|| Invalid::new("sum", "is required"))?;
        field::bounded(wire.guests.len(), "guests", GUESTS_MAX)?;
        let mut each = BTreeMap::new();
        for (name, memory) in wire.guests {
            let vm: VmName = field::name(&name, "guests")?;
            each.insert(vm, memory.into());
        }
        Ok(Self {
            sum: sum.into(),
            each,
        })
    }
}

impl From<GuestMemory> for v1::GuestMemory {
    fn from(memory: GuestMemory) -> Self {
        Self {
            resident_kib: memory.resident_kib,
            huge_kib: memory.huge_kib,
            swapped_kib: memory.swapped_kib,
        }
    }
}

impl From<v1::GuestMemory> for GuestMemory {
    fn from(wire: v1::GuestMemory) -> Self {
        Self {
            resident_kib: wire.resident_kib,
            huge_kib: wire.huge_kib,
            swapped_kib: wire.swapped_kib,
        }
    }
}
