"""The jobs of a cluster, their tasks and the tasks' addresses."""

from typing import Dict, List, Mapping, Sequence, Union

Jobs = Mapping[str, Union[Sequence[str], Mapping[int, str]]]


class ClusterSpec:
    """As `tf.train.ClusterSpec`: jobs by name, each a list of "host:port" or a dictionary of them by task index.

    >>> ClusterSpec({"ps": ["a:2222"], "worker": ["b:2222", "c:2222"]}).num_tasks("worker")
    2
    """

    def __init__(self, cluster: Union["ClusterSpec", Jobs]):
        if hasattr(cluster, "as_dict"):  # another ClusterSpec, ours or TensorFlow's
            cluster = cluster.as_dict()
        if not isinstance(cluster, Mapping):
            raise TypeError("a ClusterSpec is made of a dictionary of jobs, not of %r" % (cluster,))
        self._jobs: Dict[str, Dict[int, str]] = {}
        for job, tasks in cluster.items():
            if isinstance(tasks, str) or not isinstance(tasks, (Mapping, Sequence)):
                raise TypeError("the tasks of job %r are a list of addresses or a dictionary by index, not %r" % (job, tasks))
            numbered = dict(tasks) if isinstance(tasks, Mapping) else dict(enumerate(tasks))
            for index, address in numbered.items():
                if not isinstance(index, int) or index < 0 or not isinstance(address, str):
                    raise TypeError("job %r: %r: %r is no task: an index and its \"host:port\"" % (job, index, address))
            self._jobs[job] = numbered

    @property
    def jobs(self) -> List[str]:
        return sorted(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> List[int]:
        return sorted(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise ValueError("job %r has no task %r, but %s" % (job_name, task_index, sorted(tasks)))
        return tasks[task_index]

    def as_dict(self) -> Dict[str, Union[List[str], Dict[int, str]]]:
        """The jobs, each as a list where its indices have no gaps."""
        return {job: [tasks[i] for i in range(len(tasks))] if sorted(tasks) == list(range(len(tasks))) else dict(tasks)
                for job, tasks in self._jobs.items()}

    def to_flag(self) -> str:
        """In the format of TensorFlow's flag, "ps|host:port,worker|host:port;host:port"."""
        return ",".join(job + "|" + ";".join(tasks.get(i, "") for i in range(max(tasks, default=-1) + 1))
                        for job, tasks in sorted(self._jobs.items()))

    def _tasks(self, job_name):
        if job_name not in self._jobs:
            raise ValueError("there is no job %r, but %s" % (job_name, ", ".join(map(repr, self.jobs)) or "none"))
        return self._jobs[job_name]

    def __eq__(self, other):
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __repr__(self):
        return "ClusterSpec(%r)" % (self.as_dict(),)
