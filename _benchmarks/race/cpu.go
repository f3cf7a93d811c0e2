package race

import "syscall"

// ClientCPU is the CPU time of this process, in user and system mode. It includes the
// loop that calls, which is the same for all contestants.
var ClientCPU = Meter{
	Metric: "client CPU µs",
	Read: func() (float64, error) {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return 0, err
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1000, nil
	},
}
