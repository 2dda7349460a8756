//! Agents, schedulers and controllers killed in the middle: whoever asks again gets one volume, and
//! nothing is left of what nobody has.

use berth_proto::volume::v1::ReplicaPhase;
use berth_tests::processes::csi::volume_request;
use berth_tests::processes::{Cluster, Csi, Host, eventually};

use super::*;

/// How long a device takes that is not to be done before its agent is killed.
const NEVER: &str = "sim_create_ms = 86400000";

/// Asks for a volume without waiting for the answer.
fn ask(csi: &Csi, name: &str) -> std::thread::JoinHandle<Result<v1::Volume, tonic::Status>> {
    let (csi, request) = (csi.clone(), volume_request(name, 8 * MIB));
    std::thread::spawn(move || csi.create(&request))
}

/// Waits until there is a volume of this phase, and returns its id.
#[track_caller]
fn in_phase(cluster: &Cluster, phase: ReplicaPhase) -> String {
    eventually("a volume of that phase", || {
        let volumes = volumes(cluster);
        let mut found = volumes
            .iter()
            .filter(|volume| volume.replicas[0].phase() == phase);
        let found = found
            .next()
            .map(|volume| volume.name.replace("volumes/", ""));
        found.ok_or_else(|| format!("{volumes:?}"))
    })
}

#[track_caller]
fn restart(cluster: &mut Cluster, host: &str) {
    let programs = cluster.programs.clone();
    let agent = cluster.agent(host);
    agent.kill();
    agent.start(&programs);
    let _ = cluster.csi_node(host);
}

/// Waits until a volume is written down on its host: its device is being made.
#[track_caller]
fn recorded(cluster: &Cluster, id: &str) {
    let folder = cluster.volume_dir("h1").join("volumes");
    let record = folder.join(format!("{id}.json"));
    eventually("its record is written", || match record.exists() {
        true => Ok(()),
        false => Err("no record"),
    });
}

/// Changes what an agent is told, for its next start.
fn tell(cluster: &Cluster, host: &str, from: &str, to: &str) {
    let file = cluster.folder().join(format!("{host}.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
}

/// Goal: whatever is killed between the claim, the device, its record and the report, the same call
/// again gives the same volume. Method: a device that is never done, then one that is done while no
/// scheduler hears of it, then a removal that is never done.
#[test]
fn an_agent_is_killed_at_each_step() {
    let host = Host::new("h1").with_volumes(
        "sim-direct",
        &["region0:1024"],
        &format!("direct_align_mib = 16\n{NEVER}"),
    );
    let mut cluster = start([host]);
    let csi = cluster.add_csi_controller();
    // Between the claim and the device.
    let asking = ask(&csi, "a");
    let id = in_phase(&cluster, ReplicaPhase::Creating);
    recorded(&cluster, &id);
    assert!(devices(&cluster, "h1").is_empty());
    tell(&cluster, "h1", NEVER, "sim_create_ms = 0");
    restart(&mut cluster, "h1");
    let _ = asking.join().unwrap();
    let made = eventually("the volume is made", || {
        csi.create(&volume_request("a", 8 * MIB))
    });
    assert_eq!(made.volume_id, id);
    assert_eq!(devices(&cluster, "h1"), std::slice::from_ref(&id));

    // Between the device and the report.
    tell(&cluster, "h1", "sim_create_ms = 0", "sim_create_ms = 1500");
    restart(&mut cluster, "h1");
    let asking = ask(&csi, "b");
    let second = in_phase(&cluster, ReplicaPhase::Creating);
    recorded(&cluster, &second);
    let programs = cluster.programs.clone();
    cluster.schedulers[0].kill();
    eventually("its device is made", || match devices(&cluster, "h1") {
        made if made.contains(&second) => Ok(()),
        made => Err(format!("{made:?}")),
    });
    tell(
        &cluster,
        "h1",
        "sim_create_ms = 1500",
        "sim_create_ms = 0\nsim_erase_mib_per_s = 1",
    );
    cluster.agent("h1").kill();
    cluster.schedulers[0].start(&programs);
    cluster.agent("h1").start(&programs);
    let _ = asking.join().unwrap();
    let made = eventually("the volume is made", || {
        csi.create(&volume_request("b", 8 * MIB))
    });
    assert_eq!(made.volume_id, second);
    let mut both = [id.clone(), second.clone()];
    both.sort();
    assert_eq!(devices(&cluster, "h1"), both);

    // While it is erased; it goes on where it was.
    csi.delete(&second).unwrap();
    eventually("it is being erased", || {
        let volumes = volumes(&cluster);
        let far = |volume: &Volume| volume.replicas[0].erased_bytes > 0;
        volumes
            .iter()
            .any(far)
            .then_some(())
            .ok_or_else(|| format!("{volumes:?}"))
    });
    tell(&cluster, "h1", "sim_erase_mib_per_s = 1\n", "\n");
    restart(&mut cluster, "h1");
    eventually("it is erased", || match devices(&cluster, "h1") {
        left if left == [id.clone()] => Ok(()),
        left => Err(format!("{left:?}")),
    });
    csi.delete(&id).unwrap();
    all_gone(&cluster, &["h1"]);
}

/// Goal: a controller that is killed while a volume is made loses nothing, and another one finds it.
#[test]
fn a_controller_is_killed_while_a_volume_is_made() {
    let host = Host::new("h1").with_volumes("sim", &["region0:1024"], "sim_create_ms = 1000");
    let mut cluster = start([host]);
    let first = cluster.add_csi_controller();
    let second = cluster.add_csi_controller();
    let asking = ask(&first, "a");
    let id = in_phase(&cluster, ReplicaPhase::Creating);
    cluster.csi_controllers[0].kill();
    assert!(asking.join().unwrap().is_err());
    let made = second.create(&volume_request("a", 8 * MIB)).unwrap();
    assert_eq!(made.volume_id, id);
    assert_eq!(volumes(&cluster).len(), 1);
    second.delete(&id).unwrap();
    all_gone(&cluster, &["h1"]);
}
