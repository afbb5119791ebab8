"""The pods of `millrace manifest --for kubernetes` as real containers (node.py), each as the manifest's documents say.

What a node and the DNS of a Kubernetes cluster do with them is done here: names, addresses, environment, volumes, limits, probes and the end of a pod. When a
pod is replaced, the test decides; `Cluster.verdict` says what the Job's podFailurePolicy makes of an exit code.
"""

import json
import os
import shutil
import sys
import time

import node

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../manifest"))
import api_server  # noqa: E402

CLUSTER_DOMAIN = "cluster.local"
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def in_bytes(quantity):
    """Of memory: 64Mi."""
    return int(quantity[:-2]) * UNITS[quantity[-2:]] if quantity[-2:] in UNITS else int(quantity)


class Pod:
    """The containers of one pod, from its start to its removal."""

    def __init__(self, machine, name, spec, address):
        self.name, self.address, self.spec, self._node = name, address, spec, machine
        self.containers = {}

    @property
    def task(self):
        return self.containers["task"]

    def probe(self, kind):
        """Runs this probe of the task, as a node does: whether it succeeds."""
        container = next(c for c in self.spec["containers"] if c["name"] == "task")
        return self._node.podman("exec", self.name + ".task", *container[kind]["exec"]["command"], check=False).returncode == 0

    def signal(self, name):
        """To PID 1 of the task."""
        self._node.podman("kill", "--signal", name, self.name + ".task")

    def delete(self):
        """As a DELETE or an eviction does: SIGTERM, and SIGKILL after the grace period. The seconds that it took."""
        began = time.monotonic()
        # Not `podman pod stop`, which takes the pod's network away before its containers have ended.
        containers = ["%s.%s" % (self.name, name) for name in self.containers]
        self._node.podman("stop", "--time", str(self.spec["terminationGracePeriodSeconds"]), *containers, seconds=300)
        took = time.monotonic() - began
        self.remove()
        return took

    def kill(self):
        """As when its node dies: no process of it gets a signal that it could handle. Its name and its address go with it."""
        self._node.podman("pod", "kill", "--signal", "KILL", self.name)
        self.remove()

    def remove(self):
        self._node.podman("pod", "rm", "--force", "--time", "0", self.name)
        for container in self.containers.values():
            container.end(30)


class Cluster:
    """The pods of one manifest; `claims` has a folder for each PersistentVolumeClaim. The image must have been loaded into the node."""

    def __init__(self, machine, manifest, claims):
        self._node, self._claims = machine, claims
        import yaml  # node.why_not() tells of a Python without it
        self._documents = list(yaml.safe_load_all(manifest))
        self._made = self._node.path("pods")
        shutil.rmtree(self._made, ignore_errors=True)
        self.api = api_server.ApiServer(os.path.join(self._made, "api"), machine.listen())
        self.pods, self.all_pods = {}, []
        self._templates = {}
        stateful, job, service = (self._one(kind) for kind in ("StatefulSet", "Job", "Service"))
        assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
        self._domain = ".%s.%s.svc.%s" % (service["metadata"]["name"], self._name_space, CLUSTER_DOMAIN)
        for document, count in ((stateful, stateful["spec"]["replicas"]), (job, job["spec"]["completions"])):
            for index in range(count):
                self._templates["%s-%d" % (document["metadata"]["name"], index)] = document

    def close(self):
        for pod in list(self.pods.values()):
            pod.remove()
        self.api.close()

    def _one(self, kind, name=None):
        return next(d for d in self._documents if d["kind"] == kind and name in (None, d["metadata"]["name"]))

    @property
    def _name_space(self):
        return self._one("Service")["metadata"].get("namespace", "default")

    def start_all(self):
        return [self.start(name) for name in self._templates]

    def start(self, name):
        """The pod of this name, which does not run, with an address that none had before."""
        document = self._templates[name]
        spec = document["spec"]["template"]["spec"]
        pod = Pod(self._node, name, spec, self._node.new_address())
        full = name + self._domain
        os.makedirs(self._folder_of(pod))
        with open(os.path.join(self._folder_of(pod), "hosts"), "w") as f:  # as a node writes it for a pod with a subdomain
            f.write("127.0.0.1 localhost\n%s %s %s\n" % (pod.address, full, name))
        search = [word for end in (self._name_space + ".svc.", "svc.", "") for word in ("--dns-search", end + CLUSTER_DOMAIN)]
        self._node.podman("pod", "create", "--name", name, "--hostname", name, "--network", "%s:ip=%s,alias=%s" % (node.NETWORK, pod.address, full),
                          "--no-hosts", "--cgroup-parent", "/" + self._node.control_group, "--dns-option", "ndots:5", *search)
        self._node.podman("pod", "start", name)
        self._node.keep_bridge_address()
        for container in spec["containers"]:
            self._run(pod, container)
        self.pods[name] = pod
        self.all_pods.append(pod)
        return pod

    def restart_task(self, pod):
        """The container of the task, which has ended, once more in the same pod."""
        self._run(pod, next(container for container in pod.spec["containers"] if container["name"] == "task"))

    def _folder_of(self, pod):
        return os.path.join(self._made, pod.address)

    def _run(self, pod, container):
        """Starts a container as its specification says."""
        context, security = pod.spec["securityContext"], container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"] and security["capabilities"]["drop"] == ["ALL"]
        words = ["--pod=" + pod.name, "--name=%s.%s" % (pod.name, container["name"]), "--replace", "--pull=never", "--read-only", "--read-only-tmpfs=false",
                 "--cap-drop=ALL", "--security-opt=no-new-privileges", "--http-proxy=false", "--user=%d:%d" % (context["runAsUser"], context["runAsGroup"]),
                 "--group-add=%d" % context["fsGroup"], "--volume=%s/hosts:/etc/hosts:ro" % self._folder_of(pod)]
        variables = {"KUBERNETES_SERVICE_HOST": self.api.address, "KUBERNETES_SERVICE_PORT": self.api.port}
        if self._templates[pod.name]["kind"] == "Job":
            variables["JOB_COMPLETION_INDEX"] = pod.name.rsplit("-", 1)[1]
        variables.update((variable["name"], variable["value"]) for variable in container.get("env", []))
        words += ["--env=%s=%s" % pair for pair in variables.items()]
        memory = container.get("resources", {}).get("limits", {}).get("memory")
        if memory:
            words += ["--memory=%d" % in_bytes(memory), "--memory-swap=%d" % in_bytes(memory)]
        for mount in container["volumeMounts"]:
            volume = next(v for v in pod.spec["volumes"] if v["name"] == mount["name"])
            words.append("--volume=%s:%s:%s" % (self._made_volume(pod, volume), mount["mountPath"], "ro" if mount.get("readOnly") else "rw"))
        words += ["--entrypoint=" + json.dumps(container["command"]), container["image"]]
        pod.containers[container["name"]] = self._node.start("run", *words)

    def _made_volume(self, pod, volume):
        """The folder that is this volume of a pod, made for the first of its containers."""
        group, path = pod.spec["securityContext"]["fsGroup"], os.path.join(self._folder_of(pod), volume["name"])
        if "persistentVolumeClaim" in volume:
            path = self._claims[volume["persistentVolumeClaim"]["claimName"]]
            shutil.chown(path, group=group)
            os.chmod(path, 0o2770)
        elif not os.path.exists(path):
            os.mkdir(path)
            shutil.chown(path, group=group)
            os.chmod(path, 0o2777 if "emptyDir" in volume else 0o755)
            for name, text, mode in self._files_of(volume):
                file = os.path.join(path, name)
                with open(file, "w") as f:
                    f.write(text)
                shutil.chown(file, group=group)
                os.chmod(file, mode)
        return path

    def _files_of(self, volume):
        if "secret" in volume:
            data = self._one("Secret", volume["secret"]["secretName"])["stringData"]
            return [(name, text, volume["secret"]["defaultMode"]) for name, text in data.items()]
        if "projected" in volume:  # a service account's token
            return [("token", self.api.token, 0o640), ("ca.crt", self.api.authority, 0o644), ("namespace", self._name_space, 0o644)]
        assert "emptyDir" in volume, volume
        return []

    def verdict(self, code):
        """What the Job's podFailurePolicy makes of a worker that ended with this exit code: Ignore (replaced, not counted), FailJob or Count."""
        for rule in self._one("Job")["spec"]["podFailurePolicy"]["rules"]:
            if code in rule.get("onExitCodes", {}).get("values", []):
                return rule["action"]
        return "Count"
