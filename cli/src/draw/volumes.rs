//! The regions of a host that volumes are made of, each as a bar: the owners of its pieces and the free space.
//!
//! In mode direct a piece is drawn where it lies, so that one sees what is free and of no use. In mode
//! lvm it does not matter where, and the volumes are drawn one after the other.

use berth_domain::name::RegionName;
use berth_domain::volume::{DeviceMode, Extent, Region, Volume};
use berth_process::terminal::escape;

use super::{WIDTH, count, letter};
use crate::output::Lines;

/// The width of a bar.
const BAR: usize = 60;

/// A region with its free space.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The region.
    pub region: Region,
    /// How much can be used of the largest volume that can be made, in bytes.
    pub largest_bytes: u64,
    /// How much can be used in all, in bytes.
    pub available_bytes: u64,
    /// The free pieces; in mode direct.
    pub free: Vec<Extent>,
}

/// Draws the regions of a host and names their volumes.
#[must_use]
pub fn draw(regions: &[Drawn], volumes: &[Volume], host: &str) -> Lines {
    let mut out = Lines::from("regions for volumes");
    let mut named = 0;
    for drawn in regions {
        let region = &drawn.region;
        let mut here = held(volumes, host, &region.name);
        if region.mode == DeviceMode::Direct {
            here.sort_by_key(|(_, extent, _)| extent.map(|e| e.offset_bytes));
        }
        let letters: Vec<String> = (named..named + here.len()).map(letter).collect();
        named += here.len();
        out.push(&head(drawn));
        let pieces: Vec<(char, Extent)> = pieces(region, &here, &letters);
        writeln!(out, "    [{}]", bar(region.capacity_bytes, &pieces));
        if !region.trouble.is_empty() {
            let trouble: String = escape(&region.trouble).chars().take(WIDTH - 6).collect();
            writeln!(out, "    ! {trouble}");
        }
        for ((volume, extent, gross), letter) in here.iter().zip(&letters) {
            let place = extent.map(|e| format!(" at {}", bytes(e.offset_bytes)));
            let on = volume.replicas.iter().find(|r| r.host.as_str() == host);
            let phase = on.map(|replica| replica.phase.to_string());
            writeln!(
                out,
                "    {letter} = {} ({}, {}{})",
                volume.display_name,
                phase.unwrap_or_default(),
                bytes(*gross),
                place.unwrap_or_default(),
            );
        }
    }
    out
}

type Here<'v> = (&'v Volume, Option<Extent>, u64);

fn held<'v>(volumes: &'v [Volume], host: &str, region: &RegionName) -> Vec<Here<'v>> {
    let parts = volumes.iter().flat_map(|volume| {
        let replicas = volume.replicas.iter();
        let here = replicas.filter(|r| r.host.as_str() == host && r.region == *region);
        here.map(move |replica| (volume, replica.extent, replica.gross_bytes))
    });
    parts.collect()
}

fn head(drawn: &Drawn) -> String {
    let Drawn {
        region,
        largest_bytes,
        available_bytes,
        free,
    } = drawn;
    let cell = region.cell.map(|cell| format!("NUMA node {cell}, "));
    let pieces = match region.mode {
        DeviceMode::Direct if free.len() > 1 => format!(" in {}", count(free.len(), "piece")),
        DeviceMode::Direct | DeviceMode::Lvm => String::new(),
    };
    format!(
        "  {}: {}{}, {}, {} available{pieces}, at most {} in one volume",
        region.name,
        cell.unwrap_or_default(),
        region.mode,
        bytes(region.capacity_bytes),
        bytes(*available_bytes),
        bytes(*largest_bytes),
    )
}

fn pieces(region: &Region, here: &[Here<'_>], letters: &[String]) -> Vec<(char, Extent)> {
    let mut from = 0;
    let ours = here
        .iter()
        .zip(letters)
        .filter_map(|((_, at, gross), letter)| {
            let extent = match region.mode {
                DeviceMode::Direct => (*at)?,
                DeviceMode::Lvm if at.is_some() => return None,
                DeviceMode::Lvm => Extent {
                    offset_bytes: from,
                    length_bytes: *gross,
                },
            };
            from = extent.end_bytes();
            Some((letter.chars().next()?, extent))
        });
    let ours: Vec<_> = ours.collect();
    let foreign = region.foreign.iter().map(|extent| ('#', *extent));
    ours.into_iter().chain(foreign).collect()
}

/// Returns a bar in which each piece has a column at least.
fn bar(capacity_bytes: u64, pieces: &[(char, Extent)]) -> String {
    let mut columns = vec!['·'; BAR];
    let column = |bytes: u64| {
        let at = u128::from(bytes) * BAR as u128 / u128::from(capacity_bytes.max(1));
        usize::try_from(at).unwrap_or(BAR).min(BAR)
    };
    for (sign, extent) in pieces {
        let from = column(extent.offset_bytes).min(BAR - 1);
        let until = column(extent.end_bytes()).max(from + 1);
        columns[from..until].fill(*sign);
    }
    columns.into_iter().collect()
}

/// Returns an amount with its unit, rounded down: a volume of the printed size can be created.
#[must_use]
pub fn bytes(amount: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = UNITS.iter().find(|(_, shift)| amount >> shift > 0);
    let Some((unit, shift)) = unit else {
        return format!("{amount} B");
    };
    let hundredths = (u128::from(amount) * 100) >> shift;
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole}.{rest:02} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::id::{Generation, TimeMs};
    use berth_domain::name::HostName;
    use berth_domain::topology::CellId;
    use berth_domain::volume::{DisplayName, Kind, Parameters, Phase, Replica};
    use uuid::Uuid;

    use super::*;
    use berth_domain::ownership::Ownership;

    const GIB: u64 = 1 << 30;

    fn extent(from: u64, until: u64) -> Extent {
        Extent {
            offset_bytes: from * GIB,
            length_bytes: (until - from) * GIB,
        }
    }

    fn volume(name: &str, at: Extent, phase: Phase) -> Volume {
        let display_name = DisplayName::new(name).unwrap();
        Volume {
            id: display_name.id(Uuid::nil()),
            display_name,
            kind: Kind::Persistent,
            required_bytes: GIB,
            parameters: Parameters::default(),
            replicas: vec![Replica {
                host: HostName::new("h1").unwrap(),
                region: RegionName::new("region0").unwrap(),
                cell: None,
                mode: DeviceMode::Direct,
                gross_bytes: at.length_bytes,
                size_bytes: at.length_bytes,
                extent: Some(at),
                placed: true,
                phase,
                sequence: 1,
                erased_bytes: 0,
                failure: String::new(),
                failures: 0,
            }],
            created_at: TimeMs(0),
            generation: Generation(1),
            ownership: Ownership::default(),
        }
    }

    /// Goal: what is free and where is seen at once. The example is that of PMEM-CSI's documentation:
    /// nearly all is free, and a volume of 64 does not fit.
    #[test]
    fn fragmentation_is_seen() {
        let region = Region {
            name: RegionName::new("region0").unwrap(),
            cell: Some(CellId(1)),
            mode: DeviceMode::Direct,
            capacity_bytes: 120 * GIB,
            align_bytes: GIB,
            foreign: vec![extent(110, 120)],
            trouble: "it is\nbroken".to_owned(),
        };
        let drawn = Drawn {
            region,
            largest_bytes: 58 * GIB + GIB / 2,
            available_bytes: 100 * GIB,
            free: vec![extent(0, 50), extent(52, 110)],
        };
        let volumes = [volume("db", extent(50, 52), Phase::Ready)];
        let text = draw(&[drawn], &volumes, "h1").to_string();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "regions for volumes",
                "  region0: NUMA node 1, direct, 120 GiB, 100 GiB available in 2 pieces, at most \
                 58.50 GiB in one volume",
                "    [·························A·····························#####]",
                "    ! it is\\nbroken",
                "    A = db (READY, 2 GiB at 50 GiB)",
            ]
        );
    }

    #[test]
    fn amounts_are_rounded_down() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (4 << 20, "4 MiB"),
            ((1 << 30) - 1, "1023.99 MiB"),
            (3 << 39, "1.50 TiB"),
            (u64::MAX, "16777215.99 TiB"),
        ];
        for (amount, text) in cases {
            assert_eq!(bytes(amount), text);
        }
    }
}
