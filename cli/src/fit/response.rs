//! The response to a case.

use berth_domain::instance::{InstanceCell, InstanceTopology, VcpuId};
use berth_domain::numa::{Assignment, CellAssignment, FitRefusal};
use serde_json::{Map, Value, json};

/// The response to a case that could be evaluated.
#[derive(Clone, Debug)]
pub enum Response {
    /// It fits.
    Fits {
        /// The topology that the guest requests; absent for one without requirements.
        topology: Option<InstanceTopology>,
        /// The assignment that it would get.
        assignment: Assignment,
    },
    /// It does not.
    Refused(FitRefusal),
}

impl Response {
    /// Returns the answer to the case with this id.
    #[must_use]
    pub fn to_json(&self, id: &Value) -> Value {
        match self {
            Self::Fits {
                topology,
                assignment,
            } => json!({
                "id": id,
                "fits": true,
                "topology": topology.as_ref().map(|t| cells(t, assignment)),
                "pci": pci(assignment),
                "reasons": [],
            }),
            Self::Refused(refusal) => json!({
                "id": id,
                "fits": false,
                "reasons": [refusal.to_string()],
            }),
        }
    }
}

/// Returns the response to a case that could not be evaluated.
#[must_use]
pub fn error(id: &Value, error: &str, message: &str) -> Value {
    json!({
        "id": id,
        "fits": false,
        "reasons": [message],
        "error": error,
        "message": message,
    })
}

fn cells(topology: &InstanceTopology, assignment: &Assignment) -> Value {
    let pairs = topology.cells.iter().zip(&assignment.cells).enumerate();
    let cells: Vec<Value> = pairs
        .map(|(index, (requested, given))| {
            // The emulator's CPU is on the host cell of guest cell 0.
            let emulator: Vec<u32> = assignment.emulator.iter().map(|cpu| cpu.0).collect();
            cell(
                requested,
                given,
                if index == 0 { emulator } else { Vec::new() },
            )
        })
        .collect();
    json!({ "cells": cells })
}

fn cell(requested: &InstanceCell, given: &CellAssignment, emulator: Vec<u32>) -> Value {
    let numbers = |vcpus: &mut dyn Iterator<Item = &VcpuId>| -> Vec<u32> {
        vcpus.map(|vcpu| vcpu.0).collect()
    };
    let pins: Map<String, Value> = given
        .pins
        .iter()
        .map(|(vcpu, cpu)| (vcpu.to_string(), json!(cpu.0)))
        .collect();
    json!({
        "host_cell": given.host_cell.0,
        "cpuset": numbers(&mut requested.shared.iter()),
        "pcpuset": numbers(&mut requested.dedicated.iter()),
        "memory": given.memory_mib,
        "pagesize": given.page_size_kib,
        "cpu_pinning": pins,
        "cpuset_reserved": emulator,
    })
}

fn pci(assignment: &Assignment) -> Value {
    let requests = assignment.pci.iter().enumerate();
    let given: Map<String, Value> = requests
        .map(|(index, addresses)| {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            (index.to_string(), json!(addresses))
        })
        .collect();
    Value::Object(given)
}
