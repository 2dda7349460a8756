//! A NUMA node of a host: each dedicated CPU with its owner, shared CPUs, memory and pools of pages.

use std::collections::BTreeMap;

use berth_domain::cpu_set::CpuSet;
use berth_proto::host::v1::{CellUsage, CpuHolder, HostUsage};
use berth_proto::types::v1::{CellAssignment, Claim, HostCell, PagePool};
use maud::{Markup, html};

use super::Letters;
use crate::table::{facts, meter};
use crate::text::{Shown, count, grouped, kib, mib, plain, short, vm_path};

/// Small pages, which are not a pool of their own, are of at most so many KiB.
const SMALL_PAGE_KIB_MAX: u64 = 64;

/// Returns the part of the view.
pub(super) fn render(
    cell: &HostCell,
    usage: &HostUsage,
    claims: &[Claim],
    letters: &Letters,
) -> Markup {
    let taken = usage.cells.iter().find(|taken| taken.host_cell == cell.id);
    let taken = taken.cloned().unwrap_or_default();
    let name = format!("NUMA node {}", cell.id);
    html! {
        section class="node" aria-label=(name) {
            h4 { (name) }
            (facts(&[
                ("Memory", meter("memory", taken.memory_mib, cell.memory_mib,
                    &format!("{} of {}", mib(taken.memory_mib), mib(cell.memory_mib)))),
                ("Shared CPUs", html! {
                    @if cell.shared_cpus.is_empty() { "none" } @else {
                        (Shown(&cell.shared_cpus)) ", " (count(taken.shared_vcpus.into(), "vCPU")) " of guests with NUMA nodes"
                    }
                }),
            ]))
            (cpus(cell, usage, claims, letters))
            (pools(cell, &taken))
        }
    }
}

fn set(text: &str) -> CpuSet {
    // What is written by the same conversion; anything else is no CPU.
    text.parse().unwrap_or_default()
}

/// Who has a CPU, and what for.
struct Owner<'a> {
    holder: &'a CpuHolder,
    purpose: String,
}

fn cpus(cell: &HostCell, usage: &HostUsage, claims: &[Claim], letters: &Letters) -> Markup {
    let dedicated = set(&cell.dedicated_cpus);
    if dedicated.is_empty() {
        return html! { p { "No CPU is dedicated here." } };
    }
    let owners: BTreeMap<u32, Owner<'_>> = usage
        .cpus
        .iter()
        .map(|holder| {
            let purpose = purpose(holder, claims);
            (holder.cpu, Owner { holder, purpose })
        })
        .collect();
    let mut rest = dedicated.clone();
    let mut cores: Vec<CpuSet> = Vec::new();
    for core in &cell.cores {
        let core = set(core).intersection(&rest);
        rest = rest.difference(&core);
        cores.extend((!core.is_empty()).then_some(core));
    }
    // Those of no core: the map has every CPU.
    cores.extend(rest.iter().map(|cpu| {
        let mut alone = CpuSet::default();
        alone.insert(cpu);
        alone
    }));
    let free = dedicated
        .iter()
        .filter(|cpu| !owners.contains_key(&cpu.0))
        .count();
    html! {
        p { (count(dedicated.len() as u64, "dedicated CPU")) ", " (grouped(free as u64)) " free" }
        ol class="cores" aria-label={ "Cores of NUMA node " (cell.id) } {
            @for core in &cores {
                li { ul {
                    @for cpu in core.iter() { (thread(cpu.0, owners.get(&cpu.0), letters)) }
                } }
            }
        }
    }
}

/// Returns what a CPU is used for.
fn purpose(holder: &CpuHolder, claims: &[Claim]) -> String {
    if let Some(vcpu) = holder.vcpu {
        return format!("vCPU {vcpu}");
    }
    let claim = claims.iter().find(|claim| claim.name == holder.claim);
    let assignment = claim.and_then(|claim| claim.assignment.as_ref());
    let cells = assignment.map_or(&[][..], |assignment| &assignment.cells);
    let is_idle =
        |cell: &CellAssignment| set(&cell.idle_cpus).iter().any(|cpu| cpu.0 == holder.cpu);
    match cells.iter().any(is_idle) {
        true => "idle beside an isolated thread".to_owned(),
        false => "emulator threads".to_owned(),
    }
}

fn thread(cpu: u32, owner: Option<&Owner<'_>>, letters: &Letters) -> Markup {
    let Some(Owner { holder, purpose }) = owner else {
        return html! { li class="cpu free" { span aria-hidden="true" { (cpu) } span class="sr" { "CPU " (cpu) ": free" } } };
    };
    let text = format!("CPU {cpu}: VM {}, {purpose}", plain(short(&holder.vm)));
    html! {
        li class={ "cpu " (letters.class(&holder.claim)) } {
            a href=(vm_path(&holder.vm)) title=(text) {
                span aria-hidden="true" { (cpu) " " b { (letters.letter(&holder.claim)) } }
                span class="sr" { (text) }
            }
        }
    }
}

fn pools(cell: &HostCell, taken: &CellUsage) -> Markup {
    let is_shown = |pool: &&PagePool| pool.size_kib > SMALL_PAGE_KIB_MAX && pool.total > 0;
    let pools: Vec<&PagePool> = cell.pages.iter().filter(is_shown).collect();
    html! {
        @if pools.is_empty() { p { "No huge pages." } } @else {
            ul class="pools" aria-label={ "Pools of pages of NUMA node " (cell.id) } {
                @for pool in pools { (pool_line(pool, taken)) }
            }
        }
    }
}

fn pool_line(pool: &PagePool, taken: &CellUsage) -> Markup {
    let used = taken.pages.get(&pool.size_kib).copied().unwrap_or(0);
    let all = pool.total.saturating_sub(pool.reserved);
    let label = format!("pages of {}", kib(pool.size_kib));
    html! {
        li {
            (kib(pool.size_kib)) " pages: "
            (meter(&label, used, all, &format!("{} of {}", grouped(used), grouped(all))))
            @if pool.reserved > 0 { ", " (grouped(pool.reserved)) " reserved" }
        }
    }
}
