package dashboard

import (
	"fmt"
	"strconv"

	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/observe/internal/tally"
)

// A figure is one thing that a store tells of itself.
type figure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// figuresOf is what a store tells, with what it said of its server.
func figuresOf(store *tally.Store, health failover.Stats) []figure {
	list := []figure{}
	add := func(name string, n uint64) {
		list = append(list, figure{name, grouped(strconv.FormatUint(n, 10))})
	}
	if store.Failover != nil {
		add("Decided", health.Decided)
		add("Local", health.Local)
		add("Open", health.Open)
		add("Closed", health.Closed)
		add("Failures", health.Failures)
	}
	if store.Batches != nil {
		sent, remembered := store.Batches()
		add("Batches", sent)
		add("Remembered", remembered)
	}
	if store.Memory != nil {
		memory := store.Memory()
		add("Cells", uint64(memory.Cells))
		list = append(list, figure{"Bytes", bytesText(int64(memory.Bytes))})
		add("Evicted", memory.Evicted)
		add("Overflowed", memory.Overflowed)
	}
	return list
}

// grouped puts a comma between thousands.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func bytesText(n int64) string {
	const unit = 1024
	switch {
	case n < unit:
		return fmt.Sprintf("%d B", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/unit/unit)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/unit/unit/unit)
}
