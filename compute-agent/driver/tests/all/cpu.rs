//! Goal: what an agent reports of its hypervisor's CPUs is what libvirt says, and is consistent.
//!
//! Method: domain capabilities as libvirt 9 writes them, shortened, and a map of three models in the place
//! of libvirt's. `tests/tests/real/cpu_models` does the same with libvirt and its own map.

use std::collections::BTreeSet;
use std::convert::Infallible;

use berth_domain::cpu_model::{GuestCpu, HostCpu};
use berth_domain::name::{CpuFeature, CpuModelName, CpuVendor};
use berth_driver::libvirt::cpu::{Expanded, describe};
use berth_driver::xml::cpu as xml;

const CAPABILITIES: &str = "<domainCapabilities>
  <path>/usr/bin/qemu-system-x86_64</path><machine>pc-q35-7.2</machine><vcpu max='288'/>
  <os supported='yes'><enum name='firmware'/></os>
  <cpu>
    <mode name='host-passthrough' supported='no'/>
    <mode name='maximum' supported='yes'><enum name='maximumMigratable'/></mode>
    <mode name='host-model' supported='yes'>
      <model fallback='forbid'>Large</model>
      <vendor>AMD</vendor>
      <maxphysaddr mode='passthrough' limit='40'/>
      <feature policy='require' name='hypervisor'/>
      <feature policy='disable' name='avx'/>
      <feature policy='disable' name='never-in-it'/>
    </mode>
    <mode name='custom' supported='yes'>
      <model usable='yes' vendor='unknown'>Small</model>
      <model usable='no' vendor='AMD'>Large</model>
      <blockers model='Large'><feature name='avx'/></blockers>
      <model usable='no' vendor='AMD'>Unlisted</model>
      <model usable='no' vendor='AMD'>no name</model>
    </mode>
  </cpu>
  <devices><video supported='yes'><enum name='modelType'/></video></devices>
</domainCapabilities>";

/// The features of each model; libvirt's expansion overlooks what is disabled.
const MAP: [(&str, &[&str]); 2] = [("Small", &["sse2"]), ("Large", &["sse2", "svm", "avx"])];

fn model(name: &str) -> CpuModelName {
    CpuModelName::new(name).unwrap()
}

fn features(names: &[&str]) -> BTreeSet<CpuFeature> {
    let names = names.iter();
    names.map(|name| CpuFeature::new(name).unwrap()).collect()
}

fn expand(cpu: &GuestCpu) -> Result<Expanded, Infallible> {
    let known = MAP.iter().find(|(name, _)| model(name) == cpu.model);
    Ok(known.map(|(_, of_model)| {
        let all: BTreeSet<_> = features(of_model).union(&cpu.required).cloned().collect();
        all.difference(&cpu.disabled).cloned().collect()
    }))
}

fn described(capabilities: &str) -> Option<HostCpu> {
    let offered = xml::offered(capabilities).unwrap();
    describe(&offered.host_model?, &offered.models, expand).unwrap()
}

#[test]
fn a_host_is_described_by_what_its_model_expands_to() {
    let cpu = described(CAPABILITIES).expect("it has a model");
    assert!(cpu.is_consistent());
    let own = &cpu.host_model;
    assert_eq!(own.model, model("Large"));
    assert_eq!(own.vendor, Some(CpuVendor::new("AMD").unwrap()));
    assert_eq!(own.required, features(&["hypervisor"]));
    assert_eq!(own.disabled, features(&["avx"]));
    assert_eq!(cpu.features, features(&["hypervisor", "sse2", "svm"]));
    // One that is not in the map is of no use: what it needs is not known.
    let expected = [
        (model("Large"), features(&["avx"])),
        (model("Small"), features(&[])),
    ];
    assert_eq!(cpu.models, expected.into());
}

/// What libvirt requires that the model has anyway, and disables that it has not, is not repeated.
#[test]
fn policies_are_not_trusted() {
    let superfluous = "<feature policy='require' name='sse2'/><feature policy='force' name='aes'/>\
                       <feature policy='forbid' name='svm'/><feature policy='optional' name='x'/>";
    let capabilities =
        CAPABILITIES.replace("<maxphysaddr mode='passthrough' limit='40'/>", superfluous);
    let cpu = described(&capabilities).expect("it has a model");
    assert!(cpu.is_consistent());
    assert_eq!(cpu.host_model.required, features(&["aes", "hypervisor"]));
    assert_eq!(cpu.host_model.disabled, features(&["avx", "svm"]));
}

#[test]
fn a_host_without_a_model_is_not_described() {
    let without = CAPABILITIES.replace(
        "name='host-model' supported='yes'",
        "name='host-model' supported='no'",
    );
    let unknown = CAPABILITIES.replace("'forbid'>Large", "'forbid'>Unlisted");
    for capabilities in [&without, &unknown, "<domainCapabilities/>"] {
        assert_eq!(described(capabilities), None);
    }
}

#[test]
fn damage_is_an_error() {
    for bad in [
        CAPABILITIES.replace("Large</model>\n      <vendor>", "?</model><vendor>"),
        CAPABILITIES.replace("name='hypervisor'", "name=''"),
        CAPABILITIES.replace("<vendor>AMD", "<vendor>"),
        CAPABILITIES.replace("</cpu>", ""),
    ] {
        assert!(xml::offered(&bad).is_err(), "{bad}");
    }
    assert!(xml::definition("<cpu><vendor>AMD</vendor></cpu>").is_err());
}

/// libvirt overlooks what is disabled in a host's CPU, so that it is not written there.
#[test]
fn a_cpu_is_expanded_without_what_is_disabled() {
    let own = xml::offered(CAPABILITIES).unwrap().host_model.unwrap();
    let written = xml::host(&own);
    assert!(written.contains("<arch>x86_64</arch>"), "{written}");
    assert!(
        written.contains("<feature name=\"hypervisor\"/>"),
        "{written}"
    );
    assert!(!written.contains("avx"), "{written}");
}
